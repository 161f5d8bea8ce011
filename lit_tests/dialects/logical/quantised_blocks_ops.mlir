// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @widened
func.func @widened(%w : tensor<3x40xui8>, %k : tensor<2x5x144xui8>) {
  // CHECK-NEXT: %0 = logical.dequantize_blocks %w {scheme = "Q4_1"} : (tensor<3x40xui8>) -> tensor<3x64xf32>
  %0 = logical.dequantize_blocks %w {scheme = "Q4_1"} : (tensor<3x40xui8>) -> tensor<3x64xf32>
  // CHECK-NEXT: %1 = logical.dequantize_blocks %k {scheme = "Q4_K"} : (tensor<2x5x144xui8>) -> tensor<2x5x256xf32>
  %1 = logical.dequantize_blocks %k {scheme = "Q4_K"} : (tensor<2x5x144xui8>) -> tensor<2x5x256xf32>
  func.return
}

// CHECK-LABEL: func.func @multiplied
func.func @multiplied(%x : tensor<2x7x64xf32>, %w : tensor<3x68xui8>) {
  // CHECK-NEXT: %0 = logical.matmul_blocks %x, %w {scheme = "Q8_0"} : (tensor<2x7x64xf32>, tensor<3x68xui8>) -> tensor<2x7x3xf32>
  %0 = logical.matmul_blocks %x, %w {scheme = "Q8_0"} : (tensor<2x7x64xf32>, tensor<3x68xui8>) -> tensor<2x7x3xf32>
  // CHECK-NEXT: %1 = logical.rounded_matmul_blocks %x, %w {scheme = "Q8_0"} : (tensor<2x7x64xf32>, tensor<3x68xui8>) -> tensor<2x7x3xf32>
  %1 = logical.rounded_matmul_blocks %x, %w {scheme = "Q8_0"} : (tensor<2x7x64xf32>, tensor<3x68xui8>) -> tensor<2x7x3xf32>
  func.return
}

// CHECK-LABEL: func.func @chosen
func.func @chosen(%x : tensor<2x7x64xf32>, %w : tensor<5x3x68xui8>, %i : tensor<2x7xi64>) {
  // CHECK-NEXT: %0 = logical.matmul_blocks %x, %w, %i {scheme = "Q8_0"} : (tensor<2x7x64xf32>, tensor<5x3x68xui8>, tensor<2x7xi64>) -> tensor<2x7x3xf32>
  %0 = logical.matmul_blocks %x, %w, %i {scheme = "Q8_0"} : (tensor<2x7x64xf32>, tensor<5x3x68xui8>, tensor<2x7xi64>) -> tensor<2x7x3xf32>
  func.return
}
