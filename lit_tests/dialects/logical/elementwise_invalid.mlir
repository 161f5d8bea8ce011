// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @operands(%a : tensor<4xf32>, %b : tensor<5xf32>) {
  // CHECK: error: %b is used with type tensor<4xf32>, but is defined with type tensor<5xf32> at {{.*}}:3:41
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
  // CHECK: error: logical.neg: element type complex<f32> is not supported; use one of f64, f32, f16, bf16, f8E4M3FN, f8E5M2, i64, i32, i16, i8, u8, i1
  %0 = logical.neg %a : tensor<4xcomplex<f32>>
  func.return
}

// -----

func.func @bool(%a : tensor<4xi1>) {
  // CHECK: error: logical.mul: not defined for i1; use logical.and, logical.or or logical.xor, or cast to a number
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

// -----

func.func @power(%a : tensor<4xi32>) {
  // CHECK: error: logical.pow: not defined for i32; cast to a float type first
  %0 = logical.pow %a, %a : tensor<4xi32>
  func.return
}

// -----

func.func @modulo(%a : tensor<4xf32>) {
  // CHECK: error: logical.mod: not defined for f32; cast to an integer type first
  %0 = logical.mod %a, %a : tensor<4xf32>
  func.return
}

// -----

func.func @modulo_of_bools(%a : tensor<4xi1>) {
  // CHECK: error: logical.floor_div: not defined for i1; cast to an integer type first
  %0 = logical.floor_div %a, %a : tensor<4xi1>
  func.return
}

// -----

func.func @logic(%a : tensor<4xf32>) {
  // CHECK: error: logical.and: not defined for f32; cast to an integer type first
  %0 = logical.and %a, %a : tensor<4xf32>
  func.return
}

// -----

func.func @shifted(%a : tensor<4xf32>) {
  // CHECK: error: logical.shift_left: not defined for f32; cast to an integer type first
  %0 = logical.shift_left %a, %a : tensor<4xf32>
  func.return
}

// -----

func.func @shifted_bools(%a : tensor<4xi1>) {
  // CHECK: error: logical.shift_right: not defined for i1; cast to an integer type first
  %0 = logical.shift_right %a, %a : tensor<4xi1>
  func.return
}

// -----

func.func @bits_of_another_size(%a : tensor<4xf32>) {
  // CHECK: error: logical.bitcast: f32 has 4 bytes, i64 8; only types of one size have the same bits
  %0 = logical.bitcast %a : tensor<4xf32> -> tensor<4xi64>
  func.return
}

// -----

func.func @bits_elsewhere(%a : tensor<4xf32>) {
  // CHECK: error: logical.bitcast: shape changes from 4 to 2x2; bits keep their place
  %0 = logical.bitcast %a : tensor<4xf32> -> tensor<2x2xi32>
  func.return
}

// -----

func.func @inverted(%a : tensor<4xf16>) {
  // CHECK: error: logical.not: not defined for f16; cast to an integer type first
  %0 = logical.not %a : tensor<4xf16>
  func.return
}

// -----

func.func @magnitude(%a : tensor<4xi1>) {
  // CHECK: error: logical.abs: not defined for i1; cast to a number first
  %0 = logical.abs %a : tensor<4xi1>
  func.return
}

// -----

func.func @is_nan(%a : tensor<4xi32>) {
  // CHECK: error: logical.is_nan: not defined for i32; cast to a float type first
  %0 = logical.is_nan %a : tensor<4xi32> -> tensor<4xi1>
  func.return
}

// -----

func.func @is_nan_result(%a : tensor<4xf32>) {
  // CHECK: error: logical.is_nan: result type is 4xf32, but the operands give 4xi1
  %0 = logical.is_nan %a : tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----

func.func @no_bound(%a : tensor<4xf32>) {
  // CHECK: error: logical.clamp: has neither min nor max; give at least one
  %0 = logical.clamp %a : tensor<4xf32>
  func.return
}

// -----

func.func @bound_of_floats(%a : tensor<4xf32>) {
  // CHECK: error: logical.clamp: min is 0 : i64; write a bound of floats as a float, such as 1.0
  %0 = logical.clamp %a {min = 0} : tensor<4xf32>
  func.return
}

// -----

func.func @bound_of_integers(%a : tensor<4xi32>) {
  // CHECK: error: logical.clamp: max is 1.500000e+00 : f64; write a bound of integers as an integer, such as 1
  %0 = logical.clamp %a {max = 1.5} : tensor<4xi32>
  func.return
}

// -----

func.func @bound_out_of_range(%a : tensor<4xui8>) {
  // CHECK: error: logical.clamp: min is -1; u8 holds 0 to 255, so leave it out
  %0 = logical.clamp %a {min = -1} : tensor<4xui8>
  func.return
}

// -----

func.func @bound_is_nan(%a : tensor<4xf32>) {
  // CHECK: error: logical.clamp: max is NaN; it is a number, or left out
  %0 = logical.clamp %a {max = 0x7FF8000000000000 : f64} : tensor<4xf32>
  func.return
}

// -----

func.func @bound_is_text(%a : tensor<4xf32>) {
  // CHECK: error: logical.clamp: max is "six"; it is a number, such as 0.5, or 1 for integers
  %0 = logical.clamp %a {max = "six"} : tensor<4xf32>
  func.return
}

// -----

func.func @slope(%a : tensor<4xf32>) {
  // CHECK: error: logical.leaky_relu: negative_slope is inf; it is a finite number
  %0 = logical.leaky_relu %a {negative_slope = 0x7FF0000000000000 : f64} : tensor<4xf32>
  func.return
}

// -----

func.func @alpha(%a : tensor<4xf32>) {
  // CHECK: error: logical.elu: alpha is 1 : i64; it is a number of type f64, such as 0.5
  %0 = logical.elu %a {alpha = 1} : tensor<4xf32>
  func.return
}

// -----

func.func @beta(%a : tensor<4xf32>) {
  // CHECK: error: logical.softplus: beta is 0.0; the softplus is divided by it
  %0 = logical.softplus %a {beta = 0.0} : tensor<4xf32>
  func.return
}

// -----

func.func @activation_of_integers(%a : tensor<4xi32>) {
  // CHECK: error: logical.hard_sigmoid: not defined for i32; cast to a float type first
  %0 = logical.hard_sigmoid %a : tensor<4xi32>
  func.return
}
