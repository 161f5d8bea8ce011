// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Products of matrices, with the transposes that make the shapes fit.
// CHECK-LABEL: func.func @matmul
func.func @matmul(%a : tensor<2x3xf32>, %b : tensor<3x4xf32>, %t : tensor<4x3xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: %0 = logical.matmul %a, %b : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %0 = logical.matmul %a, %b : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %1 = logical.matmul %a, %t {transpose_b} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  %1 = logical.matmul %a, %t {transpose_b} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %2 = logical.matmul %b, %t {transpose_a, transpose_b} : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<4x4xf32>
  %2 = logical.matmul %b, %t {transpose_b, transpose_a} : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<4x4xf32>
  // true and false may be written out.
  // CHECK-NEXT: %3 = logical.matmul %a, %t {transpose_b} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  %3 = logical.matmul %a, %t {transpose_a = false, transpose_b = true} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  func.return %3 : tensor<2x4xf32>
}

// Batches: equal on both sides, symbolic, or only on the left.
// CHECK-LABEL: func.func @batched
func.func @batched(%a : tensor<?x8x2x3xbf16, #logical.dims<["N", "", "", ""]>>, %b : tensor<?x8x3x5xbf16, #logical.dims<["N", "", "", ""]>>, %w : tensor<3x5xbf16>) -> tensor<?x8x2x5xbf16, #logical.dims<["N", "", "", ""]>> {
  // CHECK-NEXT: %0 = logical.matmul %a, %b : (tensor<?x8x2x3xbf16, #logical.dims<["N", "", "", ""]>>, tensor<?x8x3x5xbf16, #logical.dims<["N", "", "", ""]>>) -> tensor<?x8x2x5xbf16, #logical.dims<["N", "", "", ""]>>
  %0 = logical.matmul %a, %b : (tensor<?x8x2x3xbf16, #logical.dims<["N", "", "", ""]>>, tensor<?x8x3x5xbf16, #logical.dims<["N", "", "", ""]>>) -> tensor<?x8x2x5xbf16, #logical.dims<["N", "", "", ""]>>
  // CHECK-NEXT: %1 = logical.matmul %a, %w : (tensor<?x8x2x3xbf16, #logical.dims<["N", "", "", ""]>>, tensor<3x5xbf16>) -> tensor<?x8x2x5xbf16, #logical.dims<["N", "", "", ""]>>
  %1 = logical.matmul %a, %w : (tensor<?x8x2x3xbf16, #logical.dims<["N", "", "", ""]>>, tensor<3x5xbf16>) -> tensor<?x8x2x5xbf16, #logical.dims<["N", "", "", ""]>>
  func.return %1 : tensor<?x8x2x5xbf16, #logical.dims<["N", "", "", ""]>>
}

// Batches broadcast: sizes of 1, and those that one side lacks.
// CHECK-LABEL: func.func @broadcast
func.func @broadcast(%a : tensor<4x1x2x3xf32>, %b : tensor<5x3x6xf32>, %m : tensor<2x3xf32>) -> tensor<5x2x6xf32> {
  // CHECK-NEXT: %0 = logical.matmul %a, %b : (tensor<4x1x2x3xf32>, tensor<5x3x6xf32>) -> tensor<4x5x2x6xf32>
  %0 = logical.matmul %a, %b : (tensor<4x1x2x3xf32>, tensor<5x3x6xf32>) -> tensor<4x5x2x6xf32>
  // CHECK-NEXT: %1 = logical.matmul %m, %b : (tensor<2x3xf32>, tensor<5x3x6xf32>) -> tensor<5x2x6xf32>
  %1 = logical.matmul %m, %b : (tensor<2x3xf32>, tensor<5x3x6xf32>) -> tensor<5x2x6xf32>
  func.return %1 : tensor<5x2x6xf32>
}

// Linear layers: a weight is outputs by inputs; the bias may be left out.
// CHECK-LABEL: func.func @linear
func.func @linear(%x : tensor<7x2x3xi32>, %v : tensor<3xi32>, %w : tensor<4x3xi32>, %b : tensor<4xi32>) -> tensor<4xi32> {
  // CHECK-NEXT: %0 = logical.linear %x, %w, %b : (tensor<7x2x3xi32>, tensor<4x3xi32>, tensor<4xi32>) -> tensor<7x2x4xi32>
  %0 = logical.linear %x, %w, %b : (tensor<7x2x3xi32>, tensor<4x3xi32>, tensor<4xi32>) -> tensor<7x2x4xi32>
  // CHECK-NEXT: %1 = logical.linear %v, %w : (tensor<3xi32>, tensor<4x3xi32>) -> tensor<4xi32>
  %1 = logical.linear %v, %w : (tensor<3xi32>, tensor<4x3xi32>) -> tensor<4xi32>
  func.return %1 : tensor<4xi32>
}

// Integers of two types, whose sums are i32.
// CHECK-LABEL: func.func @widening
func.func @widening(%a : tensor<2x3xui8>, %b : tensor<4x3xi8>) -> tensor<2x4xi32> {
  // CHECK-NEXT: %0 = logical.matmul %a, %b {transpose_b, widening} : (tensor<2x3xui8>, tensor<4x3xi8>) -> tensor<2x4xi32>
  %0 = logical.matmul %a, %b {transpose_b, widening} : (tensor<2x3xui8>, tensor<4x3xi8>) -> tensor<2x4xi32>
  func.return %0 : tensor<2x4xi32>
}
