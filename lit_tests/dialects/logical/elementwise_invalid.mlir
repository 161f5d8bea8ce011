// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @operands(%a : tensor<4xf32>, %b : tensor<5xf32>) {
  // CHECK: error: operand is used with type tensor<4xf32>, but has been previously used or defined with type tensor<5xf32>
  %0 = logical.add %a, %b : tensor<4xf32>
  func.return
}

// -----

// In the generic form each operand states its type.
func.func @operands_generic(%a : tensor<4xf32>, %b : tensor<5xf32>) {
  // CHECK: error: logical.add: operand types differ: 4xf32 and 5xf32
  %0 = "logical.add"(%a, %b) : (tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @count(%a : tensor<4xf32>) {
  // CHECK: error: logical.add: Expected 2 operands, but got 3
  %0 = logical.add %a, %a, %a : tensor<4xf32>
  func.return
}

// -----

func.func @scalar(%a : f32) {
  // CHECK: error: logical.exp: f32 is not a ranked tensor type
  %0 = logical.exp %a : f32
  func.return
}

// -----

func.func @element(%a : tensor<4xcomplex<f32>>) {
  // CHECK: error: logical.neg: element type complex<f32> is not supported; use one of f64, f32, f16, bf16, i64, i32, i16, i8, u8, i1
  %0 = logical.neg %a : tensor<4xcomplex<f32>>
  func.return
}

// -----

func.func @bool(%a : tensor<4xi1>) {
  // CHECK: error: logical.mul: not defined for i1; use logical.max for or, logical.min for and, or cast to a number
  %0 = logical.mul %a, %a : tensor<4xi1>
  func.return
}

// -----

func.func @integer(%a : tensor<4xi32>) {
  // CHECK: error: logical.exp: not defined for i32; cast to a float type first
  %0 = logical.exp %a : tensor<4xi32>
  func.return
}

// -----

func.func @predicate(%a : tensor<4xi32>) {
  // CHECK: error: logical.compare: predicate is "less"; use one of eq, ne, lt, le, gt, ge
  %0 = logical.compare "less" %a, %a : tensor<4xi32> -> tensor<4xi1>
  func.return
}

// -----

func.func @compare_result(%a : tensor<4xi32>) {
  // CHECK: error: logical.compare: result type is 4xi32, but the operands give 4xi1
  %0 = logical.compare "lt" %a, %a : tensor<4xi32> -> tensor<4xi32>
  func.return
}

// -----

func.func @condition(%c : tensor<4xi8>, %a : tensor<4xf32>) {
  // CHECK: error: logical.select: condition has element type i8, not i1; compare it with something
  %0 = logical.select %c, %a, %a : tensor<4xi8>, tensor<4xf32>
  func.return
}

// -----

func.func @condition_shape(%c : tensor<1xi1>, %a : tensor<4xf32>) {
  // CHECK: error: logical.select: condition has shape 1, the branches 4; broadcast one of them
  %0 = logical.select %c, %a, %a : tensor<1xi1>, tensor<4xf32>
  func.return
}

// -----

func.func @cast_shape(%a : tensor<4xf32>) {
  // CHECK: error: logical.cast: shape changes from 4 to 2x2; a cast keeps it
  %0 = logical.cast %a : tensor<4xf32> -> tensor<2x2xi32>
  func.return
}

// -----

func.func @approximate(%a : tensor<4xf32>) {
  // CHECK: error: logical.gelu: approximate is "erf"; use one of "none", "tanh"
  %0 = logical.gelu %a {approximate = "erf"} : tensor<4xf32>
  func.return
}

// -----

// An attribute that is none of the op's is no silent comment.
func.func @unknown(%a : tensor<4xf32>) {
  // CHECK: error: logical.gelu: unknown attribute 'aproximate'; it has: approximate
  %0 = logical.gelu %a {aproximate = "tanh"} : tensor<4xf32>
  func.return
}

// -----

func.func @identity(%a : tensor<4xf32>) {
  // CHECK: error: logical.relu: aicf.src is "act"; it is a list of strings
  %0 = logical.relu %a {aicf.src = "act"} : tensor<4xf32>
  func.return
}
