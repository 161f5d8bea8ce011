// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @nothing() {
  // CHECK: logical.global_norm: nothing to take the norm of; give one value or more
  %0 = "logical.global_norm"() : () -> tensor<f32>
  func.return
}

// -----

func.func @integers(%x : tensor<4xi32>) {
  // CHECK: logical.global_norm: not defined for i32; cast to a float type first
  %0 = logical.global_norm %x : (tensor<4xi32>) -> tensor<i32>
  func.return
}

// -----

func.func @short(%x : tensor<4xbf16>) {
  // CHECK: logical.global_norm: not defined for bf16; cast to f32 first
  %0 = logical.global_norm %x : (tensor<4xbf16>) -> tensor<bf16>
  func.return
}

// -----

func.func @mixed(%x : tensor<4xf32>, %y : tensor<4xf64>) {
  // CHECK: logical.global_norm: element types differ: operand 0 f32, operand 1 f64
  %0 = logical.global_norm %x, %y : (tensor<4xf32>, tensor<4xf64>) -> tensor<f32>
  func.return
}

// -----

func.func @result(%x : tensor<4xf32>) {
  // CHECK: logical.global_norm: result type is 4xf32, but the operands give f32
  %0 = logical.global_norm %x : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @norm_of_rank_1(%n : tensor<1xf32>) {
  // CHECK: logical.clip_factor: the norm is 1xf32; it is one float of rank 0
  %0 = logical.clip_factor %n {max_norm = 1.0} : tensor<1xf32>
  func.return
}

// -----

func.func @no_bound(%n : tensor<f32>) {
  // CHECK: logical.clip_factor: max_norm is missing; it is a number of type f64, such as 0.1
  %0 = logical.clip_factor %n : tensor<f32>
  func.return
}

// -----

func.func @negative_bound(%n : tensor<f32>) {
  // CHECK: logical.clip_factor: max_norm is -1.0; it is 0 or more, and finite
  %0 = logical.clip_factor %n {max_norm = -1.0} : tensor<f32>
  func.return
}
