// RUN: aicf-opt %s -p fold-transposes,logical-dce | filecheck %s

// CHECK: emit.decision "fold-transposes" ["t", "m"] choice "transposition read as transpose_b of the product" because "a product reads either order of the last two dimensions" rejected {"transposed copy" = "moves every element once more"}

// CHECK-LABEL: func.func @weight
func.func @weight(%x : tensor<2x3xf32>, %w : tensor<4x3xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: %m = logical.matmul %x, %w {transpose_b, aicf.id = "m", aicf.src = ["m", "t"]} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  %t = logical.transpose %w {permutation = [1, 0], aicf.id = "t", aicf.src = ["t"]} : tensor<4x3xf32> -> tensor<3x4xf32>
  %m = logical.matmul %x, %t {aicf.id = "m", aicf.src = ["m"]} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  func.return %m : tensor<2x4xf32>
}

// Both sides at once, and a flag that is set is cleared.
// CHECK-LABEL: func.func @both
func.func @both(%a : tensor<5x2x3xf32>, %b : tensor<5x3x4xf32>) -> tensor<5x2x4xf32> {
  // CHECK-NEXT: logical.matmul %a, %b : (tensor<5x2x3xf32>, tensor<5x3x4xf32>) -> tensor<5x2x4xf32>
  %0 = logical.transpose %a {permutation = [0, 2, 1]} : tensor<5x2x3xf32> -> tensor<5x3x2xf32>
  %1 = logical.transpose %b {permutation = [0, 2, 1]} : tensor<5x3x4xf32> -> tensor<5x4x3xf32>
  %2 = logical.matmul %0, %1 {transpose_a, transpose_b} : (tensor<5x3x2xf32>, tensor<5x4x3xf32>) -> tensor<5x2x4xf32>
  func.return %2 : tensor<5x2x4xf32>
}

// A transposition of other dimensions is no flag; one with other users stays for them.
// CHECK-LABEL: func.func @kept
func.func @kept(%a : tensor<2x5x3xf32>, %b : tensor<4x3xf32>) -> (tensor<5x2x4xf32>, tensor<3x4xf32>) {
  // CHECK-NEXT: %0 = logical.transpose %a {permutation = [1, 0, 2]}
  %0 = logical.transpose %a {permutation = [1, 0, 2]} : tensor<2x5x3xf32> -> tensor<5x2x3xf32>
  // CHECK-NEXT: %1 = logical.transpose %b {permutation = [1, 0]}
  %1 = logical.transpose %b {permutation = [1, 0]} : tensor<4x3xf32> -> tensor<3x4xf32>
  // CHECK-NEXT: logical.matmul %0, %b {transpose_b}
  %2 = logical.matmul %0, %1 : (tensor<5x2x3xf32>, tensor<3x4xf32>) -> tensor<5x2x4xf32>
  func.return %2, %1 : tensor<5x2x4xf32>, tensor<3x4xf32>
}
