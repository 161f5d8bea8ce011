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
