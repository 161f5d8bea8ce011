// RUN: aicf-opt %s -p read-packed-weights,logical-dce | filecheck %s

// CHECK: emit.decision "read-packed-weights" ["w", "m"] choice "product of packed rows" because "where the target has kernels for it, they widen blocks in registers, and read the fewest bytes" rejected {"widened weight" = "all of it would be written and read again"}
// CHECK: emit.decision "read-packed-weights" ["w", "e"] choice "gather of packed rows" because "only the rows that are read are widened"

// CHECK: emit.decision "read-packed-weights" ["g", "m.chosen"] choice "product of chosen packed matrices" because "where the target has kernels for it, they read the matrices that are chosen, and no others"

// CHECK-LABEL: func.func @tied
func.func @tied(%x : tensor<2x64xf32>, %i : tensor<4xi64>, %p : tensor<9x40xui8>) -> (tensor<2x9xf32>, tensor<4x64xf32>) {
  %w = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "w", aicf.src = ["w"]} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  // CHECK-NEXT: %m = logical.matmul_blocks %x, %p {scheme = "Q4_1", aicf.id = "m", aicf.src = ["m", "w"]} : (tensor<2x64xf32>, tensor<9x40xui8>) -> tensor<2x9xf32>
  %m = logical.matmul %x, %w {transpose_b, aicf.id = "m", aicf.src = ["m"]} : (tensor<2x64xf32>, tensor<9x64xf32>) -> tensor<2x9xf32>
  // CHECK-NEXT: %0 = logical.gather %p, %i {axis = 0, aicf.id = "e.packed", aicf.src = ["e"]} : (tensor<9x40xui8>, tensor<4xi64>) -> tensor<4x40xui8>
  // CHECK-NEXT: %e = logical.dequantize_blocks %0 {scheme = "Q4_1", aicf.id = "e", aicf.src = ["e", "w"]} : (tensor<4x40xui8>) -> tensor<4x64xf32>
  %e = logical.gather %w, %i {axis = 0, aicf.id = "e", aicf.src = ["e"]} : (tensor<9x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
  func.return %m, %e : tensor<2x9xf32>, tensor<4x64xf32>
}

// Matrices that are gathered are read where they lie; one column may be that of all of them.
// CHECK-LABEL: func.func @chosen
func.func @chosen(%x : tensor<64x1xf32>, %i : tensor<1x2xi64>, %p : tensor<5x9x40xui8>) -> tensor<1x2x9x1xf32> {
  %w = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "w", aicf.src = ["w"]} : (tensor<5x9x40xui8>) -> tensor<5x9x64xf32>
  %g = logical.gather %w, %i {axis = 0, aicf.id = "g", aicf.src = ["g"]} : (tensor<5x9x64xf32>, tensor<1x2xi64>) -> tensor<1x2x9x64xf32>
  // CHECK-NEXT: %m.rows = logical.reshape %x {aicf.id = "m.rows", aicf.src = ["m"]} : tensor<64x1xf32> -> tensor<64xf32>
  // CHECK-NEXT: %m.each = logical.broadcast %m.rows {dimensions = [2], aicf.id = "m.each", aicf.src = ["m"]} : tensor<64xf32> -> tensor<1x2x64xf32>
  // CHECK-NEXT: %m.chosen = logical.matmul_blocks %m.each, %p, %i {scheme = "Q4_1", aicf.id = "m.chosen", aicf.src = ["m"]} : (tensor<1x2x64xf32>, tensor<5x9x40xui8>, tensor<1x2xi64>) -> tensor<1x2x9xf32>
  // CHECK-NEXT: %m = logical.reshape %m.chosen {aicf.id = "m", aicf.src = ["m"]} : tensor<1x2x9xf32> -> tensor<1x2x9x1xf32>
  %m = logical.matmul %g, %x {aicf.id = "m", aicf.src = ["m"]} : (tensor<1x2x9x64xf32>, tensor<64x1xf32>) -> tensor<1x2x9x1xf32>
  func.return %m : tensor<1x2x9x1xf32>
}

// Rows that are not contracted, and elements of a row, need the widened weight.
// CHECK-LABEL: func.func @widened
func.func @widened(%x : tensor<2x9xf32>, %i : tensor<4xi64>, %p : tensor<9x40xui8>) -> (tensor<2x64xf32>, tensor<9x4xf32>) {
  // CHECK-NEXT: %w = logical.dequantize_blocks %p
  %w = logical.dequantize_blocks %p {scheme = "Q4_1"} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  // CHECK-NEXT: %m = logical.matmul %x, %w
  %m = logical.matmul %x, %w : (tensor<2x9xf32>, tensor<9x64xf32>) -> tensor<2x64xf32>
  // CHECK-NEXT: %e = logical.gather %w, %i {axis = 1}
  %e = logical.gather %w, %i {axis = 1} : (tensor<9x64xf32>, tensor<4xi64>) -> tensor<9x4xf32>
  func.return %m, %e : tensor<2x64xf32>, tensor<9x4xf32>
}
