// One step of gradient descent on a linear model, prediction = x w^T + b, under the mean squared error.
// The gradients are written by hand; w and b are updated in place, the learning rate is kept by the executable.
func.func @step(
    %x : tensor<64x8xf32> {logical.name = "x", logical.role = "input"},
    %y : tensor<64x4xf32> {logical.name = "y", logical.role = "input"},
    %w : tensor<4x8xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "param"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "meta"})
    -> (tensor<f32> {logical.name = "loss"},
        tensor<4x8xf32> {logical.updates = "w"},
        tensor<4xf32> {logical.updates = "b"}) {
  %prediction = logical.linear %x, %w, %b : (tensor<64x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<64x4xf32>
  %error = logical.sub %prediction, %y : tensor<64x4xf32>
  %squared = logical.mul %error, %error : tensor<64x4xf32>
  %loss = logical.reduce_mean %squared {axes = [0, 1]} : tensor<64x4xf32> -> tensor<f32>

  // d loss / d prediction = 2 error / 256
  %share = logical.constant dense<0.0078125> : tensor<64x4xf32>
  %grad = logical.mul %error, %share : tensor<64x4xf32>
  %grad_w = logical.matmul %grad, %x {transpose_a} : (tensor<64x4xf32>, tensor<64x8xf32>) -> tensor<4x8xf32>
  %grad_b = logical.reduce_sum %grad {axes = [0]} : tensor<64x4xf32> -> tensor<4xf32>

  %lr_w = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4x8xf32>
  %step_w = logical.mul %lr_w, %grad_w : tensor<4x8xf32>
  %new_w = logical.sub %w, %step_w : tensor<4x8xf32>
  %lr_b = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
  %step_b = logical.mul %lr_b, %grad_b : tensor<4xf32>
  %new_b = logical.sub %b, %step_b : tensor<4xf32>
  func.return %loss, %new_w, %new_b : tensor<f32>, tensor<4x8xf32>, tensor<4xf32>
}
