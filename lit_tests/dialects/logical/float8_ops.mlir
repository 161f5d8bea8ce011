// RUN: aicf-opt %s | aicf-opt | filecheck %s

// Constants of floats of 8 bits: numbers, and the bits of what is no number.
// CHECK-LABEL: func.func @constants
func.func @constants() -> tensor<4xf8E4M3FN> {
  // CHECK-NEXT: %0 = logical.constant dense<[1.000000e+00, -4.480000e+02, 0x7f, 1.953120e-03]> : tensor<4xf8E4M3FN>
  %0 = logical.constant dense<[1.0, -448.0, 0x7f, 0.001953125]> : tensor<4xf8E4M3FN>
  // CHECK-NEXT: %1 = logical.constant dense<0x7c> : tensor<2xf8E5M2>
  %1 = logical.constant dense<0x7c> : tensor<2xf8E5M2>
  func.return %0 : tensor<4xf8E4M3FN>
}

// They are cast, moved and multiplied; the sums of a product are f32, and its factors may be of both types.
// CHECK-LABEL: func.func @product
func.func @product(%x : tensor<2x3xf32>, %w : tensor<4x3xf8E5M2>) -> tensor<2x4xf32> {
  // CHECK-NEXT: %0 = logical.cast %x : tensor<2x3xf32> -> tensor<2x3xf8E4M3FN>
  %0 = logical.cast %x : tensor<2x3xf32> -> tensor<2x3xf8E4M3FN>
  // CHECK-NEXT: %1 = logical.transpose %w {permutation = [1, 0]} : tensor<4x3xf8E5M2> -> tensor<3x4xf8E5M2>
  %1 = logical.transpose %w {permutation = [1, 0]} : tensor<4x3xf8E5M2> -> tensor<3x4xf8E5M2>
  // CHECK-NEXT: %2 = logical.matmul %0, %1 {widening} : (tensor<2x3xf8E4M3FN>, tensor<3x4xf8E5M2>) -> tensor<2x4xf32>
  %2 = logical.matmul %0, %1 {widening} : (tensor<2x3xf8E4M3FN>, tensor<3x4xf8E5M2>) -> tensor<2x4xf32>
  func.return %2 : tensor<2x4xf32>
}
