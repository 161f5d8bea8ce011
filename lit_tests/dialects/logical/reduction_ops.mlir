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

// One op a way to combine; any and all answer in i1, whatever they are asked of.
// CHECK-LABEL: func.func @combine
func.func @combine(%x : tensor<2x3xf32>, %n : tensor<2x3xi32>) -> tensor<2x1xi1> {
  // CHECK-NEXT: %0 = logical.reduce_min %n {axes = [0]} : tensor<2x3xi32> -> tensor<3xi32>
  %0 = logical.reduce_min %n {axes = [0]} : tensor<2x3xi32> -> tensor<3xi32>
  // CHECK-NEXT: %1 = logical.reduce_prod %n {axes = [0, 1]} : tensor<2x3xi32> -> tensor<i32>
  %1 = logical.reduce_prod %n {axes = [0, 1]} : tensor<2x3xi32> -> tensor<i32>
  // CHECK-NEXT: %2 = logical.reduce_l2 %x {axes = [1]} : tensor<2x3xf32> -> tensor<2xf32>
  %2 = logical.reduce_l2 %x {axes = [1]} : tensor<2x3xf32> -> tensor<2xf32>
  // CHECK-NEXT: %3 = logical.reduce_logsumexp %x {axes = [1], keepdims} : tensor<2x3xf32> -> tensor<2x1xf32>
  %3 = logical.reduce_logsumexp %x {axes = [1], keepdims} : tensor<2x3xf32> -> tensor<2x1xf32>
  // CHECK-NEXT: %4 = logical.reduce_any %x {axes = [0, 1]} : tensor<2x3xf32> -> tensor<i1>
  %4 = logical.reduce_any %x {axes = [0, 1]} : tensor<2x3xf32> -> tensor<i1>
  // CHECK-NEXT: %5 = logical.reduce_all %n {axes = [1], keepdims} : tensor<2x3xi32> -> tensor<2x1xi1>
  %5 = logical.reduce_all %n {axes = [1], keepdims} : tensor<2x3xi32> -> tensor<2x1xi1>
  // CHECK-NEXT: %6 = logical.reduce_sum %n {axes = [1]} : tensor<2x3xi32> -> tensor<2xi32>
  %6 = logical.reduce_sum %n {axes = [1]} : tensor<2x3xi32> -> tensor<2xi32>
  // CHECK-NEXT: %7 = logical.reduce_mean %x {axes = [1]} : tensor<2x3xf32> -> tensor<2xf32>
  %7 = logical.reduce_mean %x {axes = [1]} : tensor<2x3xf32> -> tensor<2xf32>
  func.return %5 : tensor<2x1xi1>
}

// Running sums: with the element itself or without, from the first on or from the last.
// CHECK-LABEL: func.func @running
func.func @running(%x : tensor<2x3xf32>, %n : tensor<?x3xi64, #logical.dims<["N", ""]>>) -> tensor<2x3xf32> {
  // CHECK-NEXT: %0 = logical.cumsum %x {axis = 1} : tensor<2x3xf32>
  %0 = logical.cumsum %x {axis = 1} : tensor<2x3xf32>
  // CHECK-NEXT: %1 = logical.cumsum %n {axis = 0, exclusive, reverse} : tensor<?x3xi64, #logical.dims<["N", ""]>>
  %1 = logical.cumsum %n {reverse = true, exclusive, axis = 0} : tensor<?x3xi64, #logical.dims<["N", ""]>>
  func.return %0 : tensor<2x3xf32>
}

// Where the extremes are: places are i64.
// CHECK-LABEL: func.func @places
func.func @places(%x : tensor<2x3xf32>) -> tensor<2xi64> {
  // CHECK-NEXT: %0 = logical.argmax %x {axis = 1} : tensor<2x3xf32> -> tensor<2xi64>
  %0 = logical.argmax %x {axis = 1} : tensor<2x3xf32> -> tensor<2xi64>
  // CHECK-NEXT: %1 = logical.argmin %x {axis = 0, keepdims} : tensor<2x3xf32> -> tensor<1x3xi64>
  %1 = logical.argmin %x {axis = 0, keepdims} : tensor<2x3xf32> -> tensor<1x3xi64>
  func.return %0 : tensor<2xi64>
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

// The others of rows, and those of channels: dimension 1.
// CHECK-LABEL: func.func @normalise_more
func.func @normalise_more(%x : tensor<2x6x4xf32>, %r : tensor<4xf32>, %c : tensor<6xf32>) -> tensor<2x6x4xf32> {
  // CHECK-NEXT: %0 = logical.log_softmax %x {axis = 1} : tensor<2x6x4xf32>
  %0 = logical.log_softmax %x {axis = 1} : tensor<2x6x4xf32>
  // CHECK-NEXT: %1 = logical.rms_norm %0, %r {axis = 2, epsilon = 1.000000e-05 : f64} : (tensor<2x6x4xf32>, tensor<4xf32>) -> tensor<2x6x4xf32>
  %1 = logical.rms_norm %0, %r {axis = 2} : (tensor<2x6x4xf32>, tensor<4xf32>) -> tensor<2x6x4xf32>
  // CHECK-NEXT: %2 = logical.batch_norm %1, %c, %c, %c, %c {epsilon = 1.000000e-03 : f64} : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  %2 = logical.batch_norm %1, %c, %c, %c, %c {epsilon = 1.0e-3} : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  // CHECK-NEXT: %3 = logical.group_norm %2, %c, %c {groups = 3, epsilon = 1.000000e-05 : f64} : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  %3 = logical.group_norm %2, %c, %c {groups = 3} : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  func.return %3 : tensor<2x6x4xf32>
}
