// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// The axes go, or stay with size 1.
// CHECK-LABEL: func.func @reduce
func.func @reduce(%x : tensor<?x3x4xf32, #logical.dims<["N", "", ""]>>, %m : tensor<5xi1>) -> tensor<i1> {
  // CHECK-NEXT: %0 = logical.reduce_sum %x {axes = [0, 2]} : tensor<?x3x4xf32, #logical.dims<["N", "", ""]>> -> tensor<3xf32>
  %0 = logical.reduce_sum %x {axes = [0, 2]} : tensor<?x3x4xf32, #logical.dims<["N", "", ""]>> -> tensor<3xf32>
  // CHECK-NEXT: %1 = logical.reduce_mean %x {axes = [1], keepdims} : tensor<?x3x4xf32, #logical.dims<["N", "", ""]>> -> tensor<?x1x4xf32, #logical.dims<["N", "", ""]>>
  %1 = logical.reduce_mean %x {keepdims, axes = [1]} : tensor<?x3x4xf32, #logical.dims<["N", "", ""]>> -> tensor<?x1x4xf32, #logical.dims<["N", "", ""]>>
  // CHECK-NEXT: %2 = logical.reduce_max %m {axes = [0]} : tensor<5xi1> -> tensor<i1>
  %2 = logical.reduce_max %m {axes = [0]} : tensor<5xi1> -> tensor<i1>
  func.return %2 : tensor<i1>
}

// Softmax along one axis; layer_norm over the dimensions from its axis on, with a default epsilon.
// CHECK-LABEL: func.func @normalise
func.func @normalise(%x : tensor<2x3x4xf32>, %s : tensor<3x4xf32>) -> tensor<2x3x4xf32> {
  // CHECK-NEXT: %0 = logical.softmax %x {axis = 1} : tensor<2x3x4xf32>
  %0 = logical.softmax %x {axis = 1} : tensor<2x3x4xf32>
  // CHECK-NEXT: %1 = logical.layer_norm %0, %s, %s {axis = 1, epsilon = 1.000000e-03 : f64} : (tensor<2x3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
  %1 = logical.layer_norm %0, %s, %s {axis = 1, epsilon = 1.0e-3} : (tensor<2x3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
  // CHECK-NEXT: %2 = logical.layer_norm %1, %s, %s {axis = 1, epsilon = 1.000000e-05 : f64} :
  %2 = logical.layer_norm %1, %s, %s {axis = 1} : (tensor<2x3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
  func.return %2 : tensor<2x3x4xf32>
}
