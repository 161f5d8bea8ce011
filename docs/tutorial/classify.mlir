// 16 rows of 64 features to the probabilities of 32 classes.
func.func @classify(
    %x : tensor<16x64xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<32x64xf32> {logical.name = "fc.weight", logical.role = "param"},
    %b : tensor<32xf32> {logical.name = "fc.bias", logical.role = "param"})
    -> (tensor<16x32xf32> {logical.name = "probabilities"}) {
  %fc = logical.linear %x, %w, %b : (tensor<16x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<16x32xf32>
  %act = logical.relu %fc : tensor<16x32xf32>
  %prob = logical.softmax %act {axis = 1} : tensor<16x32xf32>
  func.return %prob : tensor<16x32xf32>
}
