// The smallest whole program: a row softmax.
func.func @rows(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<2x3xf32> {logical.name = "y"}) {
  %y = logical.softmax %x {axis = 1} : tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
