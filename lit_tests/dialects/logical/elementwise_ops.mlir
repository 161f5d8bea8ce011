// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Arithmetic on floats and integers.
// CHECK-LABEL: func.func @binary
func.func @binary(%a : tensor<2x3xf32>, %b : tensor<2x3xf32>, %i : tensor<4xi64>) -> tensor<2x3xf32> {
  // CHECK-NEXT: %0 = logical.add %a, %b : tensor<2x3xf32>
  %0 = logical.add %a, %b : tensor<2x3xf32>
  // CHECK-NEXT: %1 = logical.sub %0, %b : tensor<2x3xf32>
  %1 = logical.sub %0, %b : tensor<2x3xf32>
  // CHECK-NEXT: %2 = logical.mul %1, %b : tensor<2x3xf32>
  %2 = logical.mul %1, %b : tensor<2x3xf32>
  // CHECK-NEXT: %3 = logical.div %i, %i : tensor<4xi64>
  %3 = logical.div %i, %i : tensor<4xi64>
  // CHECK-NEXT: %4 = logical.max %2, %b : tensor<2x3xf32>
  %4 = logical.max %2, %b : tensor<2x3xf32>
  // CHECK-NEXT: %5 = logical.min %4, %b : tensor<2x3xf32>
  %5 = logical.min %4, %b : tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}

// Functions of one operand, in every float type; neg and relu take integers too.
// CHECK-LABEL: func.func @unary
func.func @unary(%a : tensor<8xf32>, %h : tensor<8xbf16>, %u : tensor<8xui8>) -> tensor<8xf32> {
  // CHECK-NEXT: %0 = logical.neg %u : tensor<8xui8>
  %0 = logical.neg %u : tensor<8xui8>
  // CHECK-NEXT: %1 = logical.relu %0 : tensor<8xui8>
  %1 = logical.relu %0 : tensor<8xui8>
  // CHECK-NEXT: %2 = logical.exp %h : tensor<8xbf16>
  %2 = logical.exp %h : tensor<8xbf16>
  // CHECK-NEXT: %3 = logical.log %2 : tensor<8xbf16>
  %3 = logical.log %2 : tensor<8xbf16>
  // CHECK-NEXT: %4 = logical.sqrt %a : tensor<8xf32>
  %4 = logical.sqrt %a : tensor<8xf32>
  // CHECK-NEXT: %5 = logical.rsqrt %4 : tensor<8xf32>
  %5 = logical.rsqrt %4 : tensor<8xf32>
  // CHECK-NEXT: %6 = logical.tanh %5 : tensor<8xf32>
  %6 = logical.tanh %5 : tensor<8xf32>
  // CHECK-NEXT: %7 = logical.erf %6 : tensor<8xf32>
  %7 = logical.erf %6 : tensor<8xf32>
  // CHECK-NEXT: %8 = logical.sigmoid %7 : tensor<8xf32>
  %8 = logical.sigmoid %7 : tensor<8xf32>
  // The default approximation is printed.
  // CHECK-NEXT: %9 = logical.gelu %8 {approximate = "none"} : tensor<8xf32>
  %9 = logical.gelu %8 : tensor<8xf32>
  // CHECK-NEXT: %10 = logical.gelu %9 {approximate = "tanh"} : tensor<8xf32>
  %10 = logical.gelu %9 {approximate = "tanh"} : tensor<8xf32>
  // CHECK-NEXT: %11 = logical.silu %10 : tensor<8xf32>
  %11 = logical.silu %10 : tensor<8xf32>
  func.return %11 : tensor<8xf32>
}

// Comparison, selection and casts; i1 takes max as or.
// CHECK-LABEL: func.func @choose
func.func @choose(%a : tensor<4xf32>, %b : tensor<4xf32>) -> tensor<4xi32> {
  // CHECK-NEXT: %0 = logical.compare "lt" %a, %b : tensor<4xf32> -> tensor<4xi1>
  %0 = logical.compare "lt" %a, %b : tensor<4xf32> -> tensor<4xi1>
  // CHECK-NEXT: %1 = logical.max %0, %0 : tensor<4xi1>
  %1 = logical.max %0, %0 : tensor<4xi1>
  // CHECK-NEXT: %2 = logical.select %1, %a, %b : tensor<4xi1>, tensor<4xf32>
  %2 = logical.select %1, %a, %b : tensor<4xi1>, tensor<4xf32>
  // CHECK-NEXT: %3 = logical.cast %2 : tensor<4xf32> -> tensor<4xi32>
  %3 = logical.cast %2 : tensor<4xf32> -> tensor<4xi32>
  func.return %3 : tensor<4xi32>
}

// Identity stands with the properties; symbolic sizes and scalars are types like others.
// CHECK-LABEL: func.func @types
func.func @types(%n : tensor<?x64xf16, #logical.dims<["N", ""]>>, %s : tensor<f64>) -> tensor<f64> {
  // CHECK-NEXT: %0 = logical.gelu %n {approximate = "none", aicf.id = "act", aicf.src = ["act"]} : tensor<?x64xf16, #logical.dims<["N", ""]>>
  %0 = logical.gelu %n {aicf.id = "act", aicf.src = ["act"]} : tensor<?x64xf16, #logical.dims<["N", ""]>>
  // CHECK-NEXT: %1 = logical.exp %s {aicf.id = "e"} : tensor<f64>
  %1 = logical.exp %s {aicf.id = "e"} : tensor<f64>
  func.return %1 : tensor<f64>
}

// Functions, rounding to whole numbers and powers of floats.
// CHECK-LABEL: func.func @functions
func.func @functions(%a : tensor<8xf32>, %b : tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: %0 = logical.expm1 %a : tensor<8xf32>
  %0 = logical.expm1 %a : tensor<8xf32>
  // CHECK-NEXT: %1 = logical.log1p %0 : tensor<8xf32>
  %1 = logical.log1p %0 : tensor<8xf32>
  // CHECK-NEXT: %2 = logical.sin %1 : tensor<8xf32>
  %2 = logical.sin %1 : tensor<8xf32>
  // CHECK-NEXT: %3 = logical.cos %2 : tensor<8xf32>
  %3 = logical.cos %2 : tensor<8xf32>
  // CHECK-NEXT: %4 = logical.floor %3 : tensor<8xf32>
  %4 = logical.floor %3 : tensor<8xf32>
  // CHECK-NEXT: %5 = logical.ceil %4 : tensor<8xf32>
  %5 = logical.ceil %4 : tensor<8xf32>
  // CHECK-NEXT: %6 = logical.round %5 : tensor<8xf32>
  %6 = logical.round %5 : tensor<8xf32>
  // CHECK-NEXT: %7 = logical.reciprocal %6 : tensor<8xf32>
  %7 = logical.reciprocal %6 : tensor<8xf32>
  // CHECK-NEXT: %8 = logical.pow %7, %b : tensor<8xf32>
  %8 = logical.pow %7, %b : tensor<8xf32>
  func.return %8 : tensor<8xf32>
}

// Functions of angles and of hyperbolas, and their inverses.
// CHECK-LABEL: func.func @angles
func.func @angles(%a : tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: %0 = logical.tan %a : tensor<8xf32>
  %0 = logical.tan %a : tensor<8xf32>
  // CHECK-NEXT: %1 = logical.asin %0 : tensor<8xf32>
  %1 = logical.asin %0 : tensor<8xf32>
  // CHECK-NEXT: %2 = logical.acos %1 : tensor<8xf32>
  %2 = logical.acos %1 : tensor<8xf32>
  // CHECK-NEXT: %3 = logical.atan %2 : tensor<8xf32>
  %3 = logical.atan %2 : tensor<8xf32>
  // CHECK-NEXT: %4 = logical.sinh %3 : tensor<8xf32>
  %4 = logical.sinh %3 : tensor<8xf32>
  // CHECK-NEXT: %5 = logical.cosh %4 : tensor<8xf32>
  %5 = logical.cosh %4 : tensor<8xf32>
  // CHECK-NEXT: %6 = logical.asinh %5 : tensor<8xf32>
  %6 = logical.asinh %5 : tensor<8xf32>
  // CHECK-NEXT: %7 = logical.acosh %6 : tensor<8xf32>
  %7 = logical.acosh %6 : tensor<8xf32>
  // CHECK-NEXT: %8 = logical.atanh %7 : tensor<8xf32>
  %8 = logical.atanh %7 : tensor<8xf32>
  func.return %8 : tensor<8xf32>
}

// abs and sign take integers too; a bound of floats is a float, a bound of integers an integer.
// CHECK-LABEL: func.func @bounds
func.func @bounds(%a : tensor<8xf32>, %i : tensor<8xi32>) -> tensor<8xi32> {
  // CHECK-NEXT: %0 = logical.abs %i : tensor<8xi32>
  %0 = logical.abs %i : tensor<8xi32>
  // CHECK-NEXT: %1 = logical.sign %0 : tensor<8xi32>
  %1 = logical.sign %0 : tensor<8xi32>
  // CHECK-NEXT: %2 = logical.clamp %1 {min = -3, max = 5} : tensor<8xi32>
  %2 = logical.clamp %1 {min = -3, max = 5} : tensor<8xi32>
  // CHECK-NEXT: %3 = logical.clamp %a {max = 6.000000e+00 : f64} : tensor<8xf32>
  %3 = logical.clamp %a {max = 6.0} : tensor<8xf32>
  func.return %2 : tensor<8xi32>
}

// Activations with attributes: their defaults are printed.
// CHECK-LABEL: func.func @activations
func.func @activations(%a : tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: %0 = logical.leaky_relu %a {negative_slope = 1.000000e-02 : f64} : tensor<8xf32>
  %0 = logical.leaky_relu %a : tensor<8xf32>
  // CHECK-NEXT: %1 = logical.elu %0 {alpha = 2.000000e+00 : f64} : tensor<8xf32>
  %1 = logical.elu %0 {alpha = 2.0} : tensor<8xf32>
  // CHECK-NEXT: %2 = logical.softplus %1 {beta = 1.000000e+00 : f64} : tensor<8xf32>
  %2 = logical.softplus %1 : tensor<8xf32>
  // CHECK-NEXT: %3 = logical.hard_sigmoid %2 {alpha = 0.16666666666666666 : f64, beta = 5.000000e-01 : f64} : tensor<8xf32>
  %3 = logical.hard_sigmoid %2 : tensor<8xf32>
  // CHECK-NEXT: %4 = logical.hard_swish %3 : tensor<8xf32>
  %4 = logical.hard_swish %3 : tensor<8xf32>
  func.return %4 : tensor<8xf32>
}

// Logic of truth values and of bits; division of integers that rounds down.
// CHECK-LABEL: func.func @logic
func.func @logic(%p : tensor<4xi1>, %i : tensor<4xi64>, %j : tensor<4xi64>, %a : tensor<4xf32>) -> tensor<4xi1> {
  // CHECK-NEXT: %0 = logical.floor_div %i, %j : tensor<4xi64>
  %0 = logical.floor_div %i, %j : tensor<4xi64>
  // CHECK-NEXT: %1 = logical.mod %0, %j : tensor<4xi64>
  %1 = logical.mod %0, %j : tensor<4xi64>
  // CHECK-NEXT: %2 = logical.and %0, %1 : tensor<4xi64>
  %2 = logical.and %0, %1 : tensor<4xi64>
  // CHECK-NEXT: %3 = logical.not %2 : tensor<4xi64>
  %3 = logical.not %2 : tensor<4xi64>
  // CHECK-NEXT: %4 = logical.is_nan %a : tensor<4xf32> -> tensor<4xi1>
  %4 = logical.is_nan %a : tensor<4xf32> -> tensor<4xi1>
  // CHECK-NEXT: %5 = logical.or %4, %p : tensor<4xi1>
  %5 = logical.or %4, %p : tensor<4xi1>
  // CHECK-NEXT: %6 = logical.xor %5, %p : tensor<4xi1>
  %6 = logical.xor %5, %p : tensor<4xi1>
  // CHECK-NEXT: %7 = logical.shift_left %i, %j : tensor<4xi64>
  %7 = logical.shift_left %i, %j : tensor<4xi64>
  // CHECK-NEXT: %8 = logical.shift_right %7, %j : tensor<4xi64>
  %8 = logical.shift_right %7, %j : tensor<4xi64>
  // CHECK-NEXT: %9 = logical.bitcast %8 : tensor<4xi64> -> tensor<4xf64>
  %9 = logical.bitcast %8 : tensor<4xi64> -> tensor<4xf64>
  func.return %6 : tensor<4xi1>
}
