// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @inner(%a : tensor<128x64xf32>, %b : tensor<32x10xf32>) {
  // CHECK: error: logical.matmul: contracted sizes differ: lhs K = 64 (dim 1 of 128x64), rhs K = 32 (dim 0 of 32x10)
  %0 = logical.matmul %a, %b : (tensor<128x64xf32>, tensor<32x10xf32>) -> tensor<128x10xf32>
  func.return
}

// -----

// The dimensions named are those after the transposes.
func.func @inner_transposed(%a : tensor<?x64xf32, #logical.dims<["N", ""]>>, %b : tensor<32x10xf32>) {
  // CHECK: error: logical.matmul: contracted sizes differ: lhs K = N (dim 0 of Nx64), rhs K = 10 (dim 1 of 32x10)
  %0 = logical.matmul %a, %b {transpose_a, transpose_b} : (tensor<?x64xf32, #logical.dims<["N", ""]>>, tensor<32x10xf32>) -> tensor<64x32xf32>
  func.return
}

// -----

func.func @batch(%a : tensor<3x2x2xf32>, %b : tensor<4x2x2xf32>) {
  // CHECK: error: logical.matmul: batch sizes differ: lhs 3x2x2, rhs 4x2x2; they are equal or 1 from the right
  %0 = logical.matmul %a, %b : (tensor<3x2x2xf32>, tensor<4x2x2xf32>) -> tensor<3x2x2xf32>
  func.return
}

// -----

func.func @rank(%a : tensor<2xf32>, %b : tensor<2x2xf32>) {
  // CHECK: error: logical.matmul: lhs 2xf32 has rank 1; a matrix has at least 2 dimensions
  %0 = logical.matmul %a, %b : (tensor<2xf32>, tensor<2x2xf32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @element(%a : tensor<2x2xf32>, %b : tensor<2x2xf64>) {
  // CHECK: error: logical.matmul: element types differ: lhs f32, rhs f64
  %0 = logical.matmul %a, %b : (tensor<2x2xf32>, tensor<2x2xf64>) -> tensor<2x2xf32>
  func.return
}

// -----

func.func @result(%a : tensor<2x3xf32>, %b : tensor<3x4xf32>) {
  // CHECK: error: logical.matmul: result type is 4x2xf32, but the operands give 2x4xf32
  %0 = logical.matmul %a, %b : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @operand_count(%a : tensor<2x3xf32>) {
  // CHECK: error: expected 1 operand types but had 2
  %0 = logical.matmul %a, %a : (tensor<2x3xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @linear_inner(%x : tensor<5x3xf32>, %w : tensor<3x4xf32>) {
  // CHECK: error: logical.linear: contracted sizes differ: operand K = 3 (dim 1 of 5x3), weight K = 4 (dim 1 of 3x4; a weight is [N, K])
  %0 = logical.linear %x, %w : (tensor<5x3xf32>, tensor<3x4xf32>) -> tensor<5x4xf32>
  func.return
}

// -----

func.func @linear_weight(%x : tensor<5x3xf32>, %w : tensor<3xf32>) {
  // CHECK: error: logical.linear: weight 3xf32 has rank 1; it is [N, K], outputs by inputs
  %0 = logical.linear %x, %w : (tensor<5x3xf32>, tensor<3xf32>) -> tensor<5x3xf32>
  func.return
}

// -----

func.func @linear_bias(%x : tensor<5x3xf32>, %w : tensor<4x3xf32>, %b : tensor<3xf32>) {
  // CHECK: error: logical.linear: bias has shape 3, but the weight 4x3 has 4 outputs
  %0 = logical.linear %x, %w, %b : (tensor<5x3xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<5x4xf32>
  func.return
}

// -----

func.func @linear_element(%x : tensor<5x3xf32>, %w : tensor<4x3xf32>, %b : tensor<4xf16>) {
  // CHECK: error: logical.linear: element types differ: operand f32, bias f16
  %0 = logical.linear %x, %w, %b : (tensor<5x3xf32>, tensor<4x3xf32>, tensor<4xf16>) -> tensor<5x4xf32>
  func.return
}

// -----

func.func @linear_scalar(%x : tensor<f32>, %w : tensor<4x3xf32>) {
  // CHECK: error: logical.linear: operand f32 is a scalar; it is [..., K]
  %0 = logical.linear %x, %w : (tensor<f32>, tensor<4x3xf32>) -> tensor<4xf32>
  func.return
}

// -----

// A widening product is of integers whose products i32 adds up; its result is i32.
func.func @widening_element(%a : tensor<2x3xi8>, %b : tensor<3x4xi32>) {
  // CHECK: error: logical.matmul: rhs 3x4xi32 is of i32; a widening product is of i16, i8, u8
  %0 = logical.matmul %a, %b {widening} : (tensor<2x3xi8>, tensor<3x4xi32>) -> tensor<2x4xi32>
  func.return
}

// -----

func.func @widening_result(%a : tensor<2x3xi8>, %b : tensor<3x4xui8>) {
  // CHECK: error: logical.matmul: {{.*}}2x4xi32
  %0 = logical.matmul %a, %b {widening} : (tensor<2x3xi8>, tensor<3x4xui8>) -> tensor<2x4xi8>
  func.return
}

// -----

func.func @two_types(%a : tensor<2x3xi8>, %b : tensor<3x4xui8>) {
  // CHECK: error: logical.matmul: element types differ: lhs i8, rhs u8
  %0 = logical.matmul %a, %b : (tensor<2x3xi8>, tensor<3x4xui8>) -> tensor<2x4xi8>
  func.return
}
