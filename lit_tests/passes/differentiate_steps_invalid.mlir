// RUN: not aicf-opt %s -p 'assign-ids,differentiate' 2>&1 | filecheck %s

// CHECK: logical.gradient "dw": the loss depends on 'w' in steps alone: 'w' -> 'h' -> 'best' -> 'picked' -> 'loss'; logical.argmax 'best' passes nothing back
func.func @steps(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %t : tensor<4x8xf32> {logical.name = "t", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> tensor<8x8xf32> {
  %h = logical.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %best = logical.argmax %h {axis = 1, keepdims} : tensor<4x8xf32> -> tensor<4x1xi64>
  %picked = logical.gather_elements %t, %best {axis = 1} : (tensor<4x8xf32>, tensor<4x1xi64>) -> tensor<4x1xf32>
  %loss = logical.reduce_sum %picked {axes = [0, 1]} : tensor<4x1xf32> -> tensor<f32>
  %dw = logical.gradient %loss, %w : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %dw : tensor<8x8xf32>
}
