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

// A step of a decoder: one token, keys and values that are a cache, and a position that says how far it is filled.
// CHECK-LABEL: func.func @step
func.func @step(%q : tensor<9x1x64xf32>, %k : tensor<3x2048x64xf32>, %p : tensor<i64>) {
  // CHECK-NEXT: %0 = logical.attention %q, %k, %k, %p {causal, past = 0} : (tensor<9x1x64xf32>, tensor<3x2048x64xf32>, tensor<3x2048x64xf32>, tensor<i64>) -> tensor<9x1x64xf32>
  %0 = logical.attention %q, %k, %k, %p {causal} : (tensor<9x1x64xf32>, tensor<3x2048x64xf32>, tensor<3x2048x64xf32>, tensor<i64>) -> tensor<9x1x64xf32>
  func.return
}

// A chunk of two prompts, each with a position of its own, and a mask besides.
// CHECK-LABEL: func.func @chunk
func.func @chunk(%q : tensor<2x9x16x64xf32>, %k : tensor<2x3x2048x64xf32>, %m : tensor<2x1x1x2048xi1>, %p : tensor<2xi32>) {
  // CHECK-NEXT: %0 = logical.attention %q, %k, %k, %m, %p {causal, past = 0}
  %0 = logical.attention %q, %k, %k, %m, %p {causal} : (tensor<2x9x16x64xf32>, tensor<2x3x2048x64xf32>, tensor<2x3x2048x64xf32>, tensor<2x1x1x2048xi1>, tensor<2xi32>) -> tensor<2x9x16x64xf32>
  func.return
}

// A layer of Gemma 2: a window, and scores that are capped.
// CHECK-LABEL: func.func @gemma
func.func @gemma(%q : tensor<8x16x256xf32>, %k : tensor<4x4096x256xf32>, %p : tensor<i64>) {
  // CHECK-NEXT: %0 = logical.attention %q, %k, %k, %p {scale = 6.250000e-02 : f64, causal, past = 0, window = 4096, softcap = 5.000000e+01 : f64}
  %0 = logical.attention %q, %k, %k, %p {scale = 0.0625 : f64, causal, window = 4096, softcap = 50.0 : f64} : (tensor<8x16x256xf32>, tensor<4x4096x256xf32>, tensor<4x4096x256xf32>, tensor<i64>) -> tensor<8x16x256xf32>
  func.return
}
