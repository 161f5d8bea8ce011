// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Views of static shapes.
// CHECK-LABEL: func.func @static
func.func @static(%x : tensor<4x6xf32>, %b : tensor<6xf32>) -> tensor<2x2xf32> {
  // CHECK-NEXT: %0 = logical.reshape %x : tensor<4x6xf32> -> tensor<2x2x6xf32>
  %0 = logical.reshape %x : tensor<4x6xf32> -> tensor<2x2x6xf32>
  // CHECK-NEXT: %1 = logical.transpose %0 {permutation = [2, 0, 1]} : tensor<2x2x6xf32> -> tensor<6x2x2xf32>
  %1 = logical.transpose %0 {permutation = [2, 0, 1]} : tensor<2x2x6xf32> -> tensor<6x2x2xf32>
  // CHECK-NEXT: %2 = logical.broadcast %b {dimensions = [1]} : tensor<6xf32> -> tensor<4x6xf32>
  %2 = logical.broadcast %b {dimensions = [1]} : tensor<6xf32> -> tensor<4x6xf32>
  // CHECK-NEXT: %3 = logical.slice %2 {starts = [1, 0], sizes = [2, -1], strides = [2, 1]} : tensor<4x6xf32> -> tensor<2x6xf32>
  %3 = logical.slice %2 {starts = [1, 0], sizes = [2, -1], strides = [2, 1]} : tensor<4x6xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: %4 = logical.concat %x, %3, %2 {axis = 0} : (tensor<4x6xf32>, tensor<2x6xf32>, tensor<4x6xf32>) -> tensor<10x6xf32>
  %4 = logical.concat %x, %3, %2 {axis = 0} : (tensor<4x6xf32>, tensor<2x6xf32>, tensor<4x6xf32>) -> tensor<10x6xf32>
  // CHECK-NEXT: %5 = logical.slice %4 {starts = [8, 0], sizes = [2, 2], strides = [1, 5]} : tensor<10x6xf32> -> tensor<2x2xf32>
  %5 = logical.slice %4 {starts = [8, 0], sizes = [2, 2], strides = [1, 5]} : tensor<10x6xf32> -> tensor<2x2xf32>
  // CHECK-NEXT: %6 = logical.window %4 {sizes = [3, 2], strides = [2, 1], dilations = [1, 4]} : tensor<10x6xf32> -> tensor<4x2x3x2xf32>
  %6 = logical.window %4 {sizes = [3, 2], strides = [2, 1], dilations = [1, 4]} : tensor<10x6xf32> -> tensor<4x2x3x2xf32>
  func.return %5 : tensor<2x2xf32>
}

// Windows slide along the last dimensions; those in front may be symbolic.
// CHECK-LABEL: func.func @windows
func.func @windows(%x : tensor<?x7xf32, #logical.dims<["N", ""]>>) -> tensor<?x3x2xf32, #logical.dims<["N", "", ""]>> {
  // CHECK-NEXT: %0 = logical.window %x {sizes = [2], strides = [2], dilations = [2]} : tensor<?x7xf32, #logical.dims<["N", ""]>> -> tensor<?x3x2xf32, #logical.dims<["N", "", ""]>>
  %0 = logical.window %x {sizes = [2], strides = [2], dilations = [2]} : tensor<?x7xf32, #logical.dims<["N", ""]>> -> tensor<?x3x2xf32, #logical.dims<["N", "", ""]>>
  func.return %0 : tensor<?x3x2xf32, #logical.dims<["N", "", ""]>>
}

// Sizes are polynomials: counts agree because the polynomials do, whatever N and M are; any order of terms is read.
// CHECK-LABEL: func.func @symbolic
func.func @symbolic(%x : tensor<?x4xf32, #logical.dims<["N", ""]>>, %y : tensor<?x4xf32, #logical.dims<["M", ""]>>) -> tensor<?xf32, #logical.dims<["4*M + 4*N"]>> {
  // CHECK-NEXT: %0 = logical.concat %x, %y {axis = 0} : (tensor<?x4xf32, #logical.dims<["N", ""]>>, tensor<?x4xf32, #logical.dims<["M", ""]>>) -> tensor<?x4xf32, #logical.dims<["M + N", ""]>>
  %0 = logical.concat %x, %y {axis = 0} : (tensor<?x4xf32, #logical.dims<["N", ""]>>, tensor<?x4xf32, #logical.dims<["M", ""]>>) -> tensor<?x4xf32, #logical.dims<["N + M", ""]>>
  // CHECK-NEXT: %1 = logical.reshape %0 : tensor<?x4xf32, #logical.dims<["M + N", ""]>> -> tensor<?xf32, #logical.dims<["4*M + 4*N"]>>
  %1 = logical.reshape %0 : tensor<?x4xf32, #logical.dims<["M+N", ""]>> -> tensor<?xf32, #logical.dims<["N*4 + M*2 + 2*M"]>>
  // CHECK-NEXT: %2 = logical.broadcast %x {dimensions = [1, 2]} : tensor<?x4xf32, #logical.dims<["N", ""]>> -> tensor<?x?x4xf32, #logical.dims<["N*N - 1", "N", ""]>>
  %2 = logical.broadcast %x {dimensions = [1, 2]} : tensor<?x4xf32, #logical.dims<["N", ""]>> -> tensor<?x?x4xf32, #logical.dims<["-1 + N*N", "N", ""]>>
  func.return %1 : tensor<?xf32, #logical.dims<["4*M + 4*N"]>>
}
