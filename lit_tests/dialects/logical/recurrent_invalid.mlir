// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @integers(%x : tensor<5x3x16xi32>, %w : tensor<16x4xi32>, %f : tensor<2x3x4xi32>) {
  // CHECK: error: logical.lstm: not defined for i32; cast to a float type first
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xi32>, tensor<16x4xi32>, tensor<2x3x4xi32>) -> tensor<2x5x3x4xi32>
  func.return
}

// -----

func.func @short(%x : tensor<5x3x16xf16>, %w : tensor<16x4xf16>, %f : tensor<2x3x4xf16>) {
  // CHECK: error: logical.lstm: not defined for f16; cast to f32 first
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf16>, tensor<16x4xf16>, tensor<2x3x4xf16>) -> tensor<2x5x3x4xf16>
  func.return
}

// -----

func.func @rank(%x : tensor<5x16xf32>, %w : tensor<16x4xf32>, %f : tensor<2x3x4xf32>) {
  // CHECK: error: logical.lstm: operand is 5x16xf32; it has rank 3: steps, batch and gates side by side
  %0 = logical.lstm %x, %w, %f : (tensor<5x16xf32>, tensor<16x4xf32>, tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>
  func.return
}

// -----

func.func @weight_rank(%x : tensor<5x3x16xf32>, %w : tensor<64xf32>, %f : tensor<2x3x4xf32>) {
  // CHECK: error: logical.lstm: weight is 64xf32; it has rank 2: gates below each other, and states
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf32>, tensor<64xf32>, tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>
  func.return
}

// -----

func.func @gates(%x : tensor<5x3x16xf32>, %w : tensor<12x4xf32>, %f : tensor<2x3x4xf32>) {
  // CHECK: error: logical.lstm: operand 5x3x16xf32 and weight 12x4xf32 do not fit; they are [S, B, 4 * H] and [4 * H, H], H a number
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf32>, tensor<12x4xf32>, tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>
  func.return
}

// -----

func.func @types(%x : tensor<5x3x16xf32>, %w : tensor<16x4xf64>, %f : tensor<2x3x4xf32>) {
  // CHECK: error: logical.lstm: weight is 16x4xf64; for operand 5x3x16xf32 it is 16x4xf32
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf32>, tensor<16x4xf64>, tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>
  func.return
}

// -----

func.func @first(%x : tensor<5x3x16xf32>, %w : tensor<16x4xf32>, %f : tensor<3x4xf32>) {
  // CHECK: error: logical.lstm: first is 3x4xf32; for operand 5x3x16xf32 it is 2x3x4xf32
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf32>, tensor<16x4xf32>, tensor<3x4xf32>) -> tensor<2x5x3x4xf32>
  func.return
}
