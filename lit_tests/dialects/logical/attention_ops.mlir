// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @attention
func.func @attention(%q : tensor<2x4x5x8xf16>, %k : tensor<2x4x7x8xf16>, %v : tensor<2x4x7x6xf16>, %m : tensor<5x7xf16>) {
  // CHECK-NEXT: %0 = logical.attention %q, %k, %v {past = 0} : (tensor<2x4x5x8xf16>, tensor<2x4x7x8xf16>, tensor<2x4x7x6xf16>) -> tensor<2x4x5x6xf16>
  %0 = logical.attention %q, %k, %v : (tensor<2x4x5x8xf16>, tensor<2x4x7x8xf16>, tensor<2x4x7x6xf16>) -> tensor<2x4x5x6xf16>
  // CHECK-NEXT: %1 = logical.attention %q, %k, %v, %m {scale = 5.000000e-01 : f64, causal, past = 2} : (tensor<2x4x5x8xf16>, tensor<2x4x7x8xf16>, tensor<2x4x7x6xf16>, tensor<5x7xf16>) -> tensor<2x4x5x6xf16>
  %1 = logical.attention %q, %k, %v, %m {scale = 0.5 : f64, causal, past = 2} : (tensor<2x4x5x8xf16>, tensor<2x4x7x8xf16>, tensor<2x4x7x6xf16>, tensor<5x7xf16>) -> tensor<2x4x5x6xf16>
  func.return
}

// Keys of one head serve four heads of queries; the tokens may be symbolic.
// CHECK-LABEL: func.func @grouped
func.func @grouped(%q : tensor<8x?x16xf32, #logical.dims<["", "N", ""]>>, %k : tensor<2x?x16xf32, #logical.dims<["", "N", ""]>>) {
  // CHECK-NEXT: %0 = logical.attention %q, %k, %k {causal, past = 0}
  %0 = logical.attention %q, %k, %k {causal} : (tensor<8x?x16xf32, #logical.dims<["", "N", ""]>>, tensor<2x?x16xf32, #logical.dims<["", "N", ""]>>, tensor<2x?x16xf32, #logical.dims<["", "N", ""]>>) -> tensor<8x?x16xf32, #logical.dims<["", "N", ""]>>
  func.return
}
