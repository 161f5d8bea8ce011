// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @scheme(%w : tensor<3x40xui8>) {
  // CHECK: error: logical.dequantize_blocks: scheme is "Q9_9"; use one of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, U4, U4_16, U4_128, U8_16, U8_32, U8_128, E4M3_32, E4M3_128
  %0 = logical.dequantize_blocks %w {scheme = "Q9_9"} : (tensor<3x40xui8>) -> tensor<3x64xf32>
  func.return
}

// -----

func.func @bytes(%w : tensor<3x41xui8>) {
  // CHECK: error: logical.dequantize_blocks: rows have 41 bytes; Q4_1 has blocks of 20
  %0 = logical.dequantize_blocks %w {scheme = "Q4_1"} : (tensor<3x41xui8>) -> tensor<3x64xf32>
  func.return
}

// -----

func.func @element(%w : tensor<3x40xf32>) {
  // CHECK: error: logical.dequantize_blocks: packed is 3x40xf32; it is rows of bytes: u8[..., bytes of a row]
  %0 = logical.dequantize_blocks %w {scheme = "Q4_1"} : (tensor<3x40xf32>) -> tensor<3x64xf32>
  func.return
}

// -----

func.func @columns(%x : tensor<2x32xf32>, %w : tensor<3x40xui8>) {
  // CHECK: error: logical.matmul_blocks: contracted sizes differ: operand K = 32, packed K = 64
  %0 = logical.matmul_blocks %x, %w {scheme = "Q4_1"} : (tensor<2x32xf32>, tensor<3x40xui8>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @rounded_columns(%x : tensor<2x32xf32>, %w : tensor<3x40xui8>) {
  // CHECK: error: logical.rounded_matmul_blocks: contracted sizes differ: operand K = 32, packed K = 64
  %0 = logical.rounded_matmul_blocks %x, %w {scheme = "Q4_1"} : (tensor<2x32xf32>, tensor<3x40xui8>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @rows(%x : tensor<2x64xf16>, %w : tensor<3x40xui8>) {
  // CHECK: error: logical.matmul_blocks: result type is 2x3xf32, but the operands give 2x3xf16
  %0 = logical.matmul_blocks %x, %w {scheme = "Q4_1"} : (tensor<2x64xf16>, tensor<3x40xui8>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @matrix(%x : tensor<2x64xf32>, %w : tensor<2x3x40xui8>) {
  // CHECK: error: logical.matmul_blocks: packed is 2x3x40xu8; it is one matrix: u8[N, bytes of a row]
  %0 = logical.matmul_blocks %x, %w {scheme = "Q4_1"} : (tensor<2x64xf32>, tensor<2x3x40xui8>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @matrices(%x : tensor<2x64xf32>, %w : tensor<3x40xui8>, %i : tensor<2xi64>) {
  // CHECK: error: logical.matmul_blocks: packed is 3x40xu8; with indices it is matrices: u8[E, N, bytes of a row]
  %0 = logical.matmul_blocks %x, %w, %i {scheme = "Q4_1"} : (tensor<2x64xf32>, tensor<3x40xui8>, tensor<2xi64>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @indices(%x : tensor<2x64xf32>, %w : tensor<5x3x40xui8>, %i : tensor<3xi64>) {
  // CHECK: error: logical.matmul_blocks: indices are 3xi64; there is one for each row of the operand 2x64xf32
  %0 = logical.matmul_blocks %x, %w, %i {scheme = "Q4_1"} : (tensor<2x64xf32>, tensor<5x3x40xui8>, tensor<3xi64>) -> tensor<2x3xf32>
  func.return
}
