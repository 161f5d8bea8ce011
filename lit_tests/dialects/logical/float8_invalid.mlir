// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// What computes refuses floats of 8 bits.
func.func @elementwise(%x : tensor<2xf8E4M3FN>) {
  // CHECK: error: logical.add: not defined for f8E4M3FN, which is only stored and multiplied; cast to f16 or f32 first
  %0 = logical.add %x, %x : tensor<2xf8E4M3FN>
  func.return
}

// -----

func.func @reduction(%x : tensor<2xf8E5M2>) {
  // CHECK: error: logical.reduce_sum: not defined for f8E5M2, which is only stored and multiplied
  %0 = logical.reduce_sum %x {axes = [0]} : tensor<2xf8E5M2> -> tensor<f8E5M2>
  func.return
}

// -----

// A product of floats of 8 bits states that its sums are wider.
func.func @narrow(%a : tensor<2x3xf8E5M2>, %b : tensor<3x4xf8E5M2>) {
  // CHECK: error: logical.matmul: lhs 2x3xf8E5M2 is of f8E5M2, whose products are added up in f32; add widening
  %0 = logical.matmul %a, %b : (tensor<2x3xf8E5M2>, tensor<3x4xf8E5M2>) -> tensor<2x4xf8E5M2>
  func.return
}

// -----

func.func @mixed(%a : tensor<2x3xf8E5M2>, %b : tensor<3x4xi8>) {
  // CHECK: error: logical.matmul: rhs 3x4xi8 is of i8; a widening product is of i16, i8, u8, or of f8E4M3FN, f8E5M2
  %0 = logical.matmul %a, %b {widening} : (tensor<2x3xf8E5M2>, tensor<3x4xi8>) -> tensor<2x4xf32>
  func.return
}

// -----

func.func @infinity() {
  // CHECK: error: logical.constant: a value is too large for f8E4M3FN
  %0 = logical.constant dense<500.0> : tensor<f8E4M3FN>
  func.return
}

// -----

func.func @convolution(%x : tensor<1x2x5xf8E5M2>, %w : tensor<3x2x3xf8E5M2>) {
  // CHECK: error: logical.conv: {{.*}}f8E5M2
  %0 = logical.conv %x, %w {strides = [1], dilations = [1], low = [0], high = [0], groups = 1, widening} : (tensor<1x2x5xf8E5M2>, tensor<3x2x3xf8E5M2>) -> tensor<1x3x3xf32>
  func.return
}
