// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Reading at places.
// CHECK-LABEL: func.func @reads
func.func @reads(%x : tensor<4x6xf32>, %v : tensor<f32>, %i : tensor<2x3xi64>) {
  // CHECK-NEXT: %0 = logical.iota {axis = 1} : tensor<4x6xi32>
  %0 = logical.iota {axis = 1} : tensor<4x6xi32>
  // CHECK-NEXT: %1 = logical.pad %x, %v {low = [1, 0], high = [0, 2]} : (tensor<4x6xf32>, tensor<f32>) -> tensor<5x8xf32>
  %1 = logical.pad %x, %v {low = [1, 0], high = [0, 2]} : (tensor<4x6xf32>, tensor<f32>) -> tensor<5x8xf32>
  // CHECK-NEXT: %2 = logical.gather %x, %i {axis = 0} : (tensor<4x6xf32>, tensor<2x3xi64>) -> tensor<2x3x6xf32>
  %2 = logical.gather %x, %i {axis = 0} : (tensor<4x6xf32>, tensor<2x3xi64>) -> tensor<2x3x6xf32>
  // CHECK-NEXT: %3 = logical.gather_elements %x, %i {axis = 1} : (tensor<4x6xf32>, tensor<2x3xi64>) -> tensor<2x3xf32>
  %3 = logical.gather_elements %x, %i {axis = 1} : (tensor<4x6xf32>, tensor<2x3xi64>) -> tensor<2x3xf32>
  // CHECK-NEXT: %4 = logical.flip %x {axes = [0, 1]} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = logical.flip %x {axes = [0, 1]} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: %5 = logical.tile %x {repeats = [2, 1]} : (tensor<4x6xf32>) -> tensor<8x6xf32>
  %5 = logical.tile %x {repeats = [2, 1]} : (tensor<4x6xf32>) -> tensor<8x6xf32>
  // CHECK-NEXT: %6 = logical.one_hot %i, %v, %v {axis = 2, depth = 5} : (tensor<2x3xi64>, tensor<f32>, tensor<f32>) -> tensor<2x3x5xf32>
  %6 = logical.one_hot %i, %v, %v {axis = 2, depth = 5} : (tensor<2x3xi64>, tensor<f32>, tensor<f32>) -> tensor<2x3x5xf32>
  func.return
}

// Writing at places, and the places of the largest.
// CHECK-LABEL: func.func @writes
func.func @writes(%x : tensor<4x6xf32>, %r : tensor<3xi32>, %u : tensor<3x6xf32>, %i : tensor<2x3xi64>, %e : tensor<2x3xf32>, %n : tensor<5x2xi64>, %s : tensor<5xf32>, %p : tensor<i64>, %w : tensor<4x1xf32>, %q : tensor<4xi64>) {
  // CHECK-NEXT: %0 = logical.scatter %x, %r, %u {mode = "add"} : (tensor<4x6xf32>, tensor<3xi32>, tensor<3x6xf32>) -> tensor<4x6xf32>
  %0 = logical.scatter %x, %r, %u {mode = "add"} : (tensor<4x6xf32>, tensor<3xi32>, tensor<3x6xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: %1 = logical.scatter_elements %x, %i, %e {axis = 1, mode = "set"} : (tensor<4x6xf32>, tensor<2x3xi64>, tensor<2x3xf32>) -> tensor<4x6xf32>
  %1 = logical.scatter_elements %x, %i, %e {axis = 1, mode = "set"} : (tensor<4x6xf32>, tensor<2x3xi64>, tensor<2x3xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: %2 = logical.scatter_nd %x, %n, %s {mode = "max"} : (tensor<4x6xf32>, tensor<5x2xi64>, tensor<5xf32>) -> tensor<4x6xf32>
  %2 = logical.scatter_nd %x, %n, %s {mode = "max"} : (tensor<4x6xf32>, tensor<5x2xi64>, tensor<5xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: %3 = logical.topk_indices %x {axis = 1, k = 2, smallest} : (tensor<4x6xf32>) -> tensor<4x2xi64>
  %3 = logical.topk_indices %x {axis = 1, k = 2, smallest} : (tensor<4x6xf32>) -> tensor<4x2xi64>
  // CHECK-NEXT: %4 = logical.last_update %r {rows = 4} : (tensor<3xi32>) -> tensor<4xi32>
  %4 = logical.last_update %r {rows = 4} : (tensor<3xi32>) -> tensor<4xi32>
  // CHECK-NEXT: %5 = logical.scatter_combine %x, %r, %u {mode = "max"} : (tensor<4x6xf32>, tensor<3xi32>, tensor<3x6xf32>) -> tensor<4x6xf32>
  %5 = logical.scatter_combine %x, %r, %u {mode = "max"} : (tensor<4x6xf32>, tensor<3xi32>, tensor<3x6xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: %6 = logical.write_row %w, %p, %x {axis = 1} : (tensor<4x1xf32>, tensor<i64>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %6 = logical.write_row %w, %p, %x {axis = 1} : (tensor<4x1xf32>, tensor<i64>, tensor<4x6xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: %7 = logical.write_row %w, %q, %x {axis = 1} : (tensor<4x1xf32>, tensor<4xi64>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %7 = logical.write_row %w, %q, %x {axis = 1} : (tensor<4x1xf32>, tensor<4xi64>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return
}

// Symbolic sizes: padding adds to them, tiling multiplies them.
// CHECK-LABEL: func.func @symbolic
func.func @symbolic(%x : tensor<?x4xf32, #logical.dims<["N", ""]>>, %v : tensor<f32>) {
  // CHECK: -> tensor<?x4xf32, #logical.dims<["N + 3", ""]>>
  %0 = logical.pad %x, %v {low = [1, 0], high = [2, 0]} : (tensor<?x4xf32, #logical.dims<["N", ""]>>, tensor<f32>) -> tensor<?x4xf32, #logical.dims<["N + 3", ""]>>
  // CHECK: -> tensor<?x4xf32, #logical.dims<["3*N", ""]>>
  %1 = logical.tile %x {repeats = [3, 1]} : (tensor<?x4xf32, #logical.dims<["N", ""]>>) -> tensor<?x4xf32, #logical.dims<["3*N", ""]>>
  func.return
}
