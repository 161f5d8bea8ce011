// A pre-norm MLP block with residual: 128 tokens of width 512, hidden width 2048.
func.func @block(
    %x : tensor<128x512xf32> {logical.name = "x", logical.role = "input"},
    %scale : tensor<512xf32> {logical.name = "norm.weight", logical.role = "param"},
    %shift : tensor<512xf32> {logical.name = "norm.bias", logical.role = "param"},
    %w1 : tensor<2048x512xf32> {logical.name = "up.weight", logical.role = "param"},
    %b1 : tensor<2048xf32> {logical.name = "up.bias", logical.role = "param"},
    %w2 : tensor<512x2048xf32> {logical.name = "down.weight", logical.role = "param"},
    %b2 : tensor<512xf32> {logical.name = "down.bias", logical.role = "param"})
    -> (tensor<128x512xf32> {logical.name = "y"}) {
  %norm = logical.layer_norm %x, %scale, %shift {axis = 1, epsilon = 1.0e-5 : f64} : (tensor<128x512xf32>, tensor<512xf32>, tensor<512xf32>) -> tensor<128x512xf32>
  %up = logical.linear %norm, %w1, %b1 : (tensor<128x512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> tensor<128x2048xf32>
  %act = logical.gelu %up : tensor<128x2048xf32>
  %down = logical.linear %act, %w2, %b2 : (tensor<128x2048xf32>, tensor<512x2048xf32>, tensor<512xf32>) -> tensor<128x512xf32>
  %y = logical.add %down, %x : tensor<128x512xf32>
  func.return %y : tensor<128x512xf32>
}
