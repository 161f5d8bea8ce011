// The digits classifier: 8x8 grey images to class probabilities. N images at a time.
func.func @digits(
    %x : tensor<?x64xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"},
    %w1 : tensor<128x64xf32> {logical.name = "fc1.weight", logical.role = "param"},
    %b1 : tensor<128xf32> {logical.name = "fc1.bias", logical.role = "param"},
    %w2 : tensor<64x128xf32> {logical.name = "fc2.weight", logical.role = "param"},
    %b2 : tensor<64xf32> {logical.name = "fc2.bias", logical.role = "param"},
    %w3 : tensor<10x64xf32> {logical.name = "fc3.weight", logical.role = "param"},
    %b3 : tensor<10xf32> {logical.name = "fc3.bias", logical.role = "param"})
    -> (tensor<?x10xf32, #logical.dims<["N", ""]>> {logical.name = "probabilities"}) {
  %fc1 = logical.linear %x, %w1, %b1 : (tensor<?x64xf32, #logical.dims<["N", ""]>>, tensor<128x64xf32>, tensor<128xf32>) -> tensor<?x128xf32, #logical.dims<["N", ""]>>
  %relu1 = logical.relu %fc1 : tensor<?x128xf32, #logical.dims<["N", ""]>>
  %fc2 = logical.linear %relu1, %w2, %b2 : (tensor<?x128xf32, #logical.dims<["N", ""]>>, tensor<64x128xf32>, tensor<64xf32>) -> tensor<?x64xf32, #logical.dims<["N", ""]>>
  %relu2 = logical.relu %fc2 : tensor<?x64xf32, #logical.dims<["N", ""]>>
  %fc3 = logical.linear %relu2, %w3, %b3 : (tensor<?x64xf32, #logical.dims<["N", ""]>>, tensor<10x64xf32>, tensor<10xf32>) -> tensor<?x10xf32, #logical.dims<["N", ""]>>
  %prob = logical.softmax %fc3 {axis = 1} : tensor<?x10xf32, #logical.dims<["N", ""]>>
  func.return %prob : tensor<?x10xf32, #logical.dims<["N", ""]>>
}
