// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @rank(%q : tensor<5x8xf32>, %k : tensor<7x8xf32>) {
  // CHECK: error: logical.attention: query 5x8xf32 has rank 2; it is [batch..., heads, tokens, size]
  %0 = logical.attention %q, %k, %k : (tensor<5x8xf32>, tensor<7x8xf32>, tensor<7x8xf32>) -> tensor<5x8xf32>
  func.return
}

// -----

func.func @element(%q : tensor<1x5x8xi32>) {
  // CHECK: error: logical.attention: not defined for i32; cast to a float type first
  %0 = logical.attention %q, %q, %q : (tensor<1x5x8xi32>, tensor<1x5x8xi32>, tensor<1x5x8xi32>) -> tensor<1x5x8xi32>
  func.return
}

// -----

func.func @elements(%q : tensor<1x5x8xf32>, %k : tensor<1x5x8xf16>) {
  // CHECK: error: logical.attention: element types differ: query f32, key f16
  %0 = logical.attention %q, %k, %q : (tensor<1x5x8xf32>, tensor<1x5x8xf16>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @batch(%q : tensor<2x1x5x8xf32>, %k : tensor<3x1x5x8xf32>) {
  // CHECK: error: logical.attention: batch sizes differ: query 2x1x5x8, key 3x1x5x8
  %0 = logical.attention %q, %k, %k : (tensor<2x1x5x8xf32>, tensor<3x1x5x8xf32>, tensor<3x1x5x8xf32>) -> tensor<2x1x5x8xf32>
  func.return
}

// -----

func.func @depth(%q : tensor<1x5x8xf32>, %k : tensor<1x5x4xf32>) {
  // CHECK: error: logical.attention: sizes of a query and a key differ: 8 in 1x5x8, 4 in 1x5x4
  %0 = logical.attention %q, %k, %q : (tensor<1x5x8xf32>, tensor<1x5x4xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @tokens(%q : tensor<1x5x8xf32>, %v : tensor<1x6x8xf32>) {
  // CHECK: error: logical.attention: heads or tokens differ: key 1x5x8, value 1x6x8
  %0 = logical.attention %q, %q, %v : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x6x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @heads(%q : tensor<6x5x8xf32>, %k : tensor<4x5x8xf32>) {
  // CHECK: error: logical.attention: 6 heads of queries are no multiple of 4 heads of keys (6x5x8, 4x5x8)
  %0 = logical.attention %q, %k, %k : (tensor<6x5x8xf32>, tensor<4x5x8xf32>, tensor<4x5x8xf32>) -> tensor<6x5x8xf32>
  func.return
}

// -----

func.func @scale(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: scale is 0.0; it is finite and not 0
  %0 = logical.attention %q, %q, %q {scale = 0.0 : f64} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @past(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: past is -1; it is the number of keys before the first query, 0 or more
  %0 = logical.attention %q, %q, %q {causal, past = -1} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @past_alone(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: past without causal has no meaning; add causal or drop past
  %0 = logical.attention %q, %q, %q {past = 1} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @mask_element(%q : tensor<1x5x8xf32>, %m : tensor<5x5xi32>) {
  // CHECK: error: logical.attention: mask has element type i32; it is f32 or i1
  %0 = logical.attention %q, %q, %q, %m : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<5x5xi32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @mask_shape(%q : tensor<3x5x8xf32>, %m : tensor<2x5x5xf32>) {
  // CHECK: error: logical.attention: mask 2x5x5 does not broadcast to the scores 3x5x5 from the right
  %0 = logical.attention %q, %q, %q, %m : (tensor<3x5x8xf32>, tensor<3x5x8xf32>, tensor<3x5x8xf32>, tensor<2x5x5xf32>) -> tensor<3x5x8xf32>
  func.return
}

// -----

func.func @scale_kind(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: scale is 1 : i64; it is a number of type f64, such as 0.125
  %0 = logical.attention %q, %q, %q {scale = 1} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @past_kind(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: past is 1.000000e+00 : f64; it is an integer
  %0 = logical.attention %q, %q, %q {causal, past = 1.0} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @causal_kind(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: causal is "yes"; it is a flag: write its name alone
  %0 = logical.attention %q, %q, %q {causal = "yes"} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @position_alone(%q : tensor<1x5x8xf32>, %p : tensor<i64>) {
  // CHECK: error: logical.attention: a position stands in place of past, with causal; add causal and drop past
  %0 = logical.attention %q, %q, %q, %p : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<i64>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @position_shape(%q : tensor<2x1x5x8xf32>, %p : tensor<5xi64>) {
  // CHECK: error: logical.attention: position has shape 5; it is one number of rank 0, or one for each of 2 before the heads
  %0 = logical.attention %q, %q, %q, %p {causal} : (tensor<2x1x5x8xf32>, tensor<2x1x5x8xf32>, tensor<2x1x5x8xf32>, tensor<5xi64>) -> tensor<2x1x5x8xf32>
  func.return
}

// -----

func.func @position_type(%q : tensor<1x5x8xf32>, %p : tensor<i8>) {
  // CHECK: error: logical.attention: position has element type i8; it is i32 or i64
  %0 = logical.attention %q, %q, %q, %p {causal} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<i8>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @order(%q : tensor<1x5x8xf32>, %m : tensor<5x5xf32>, %p : tensor<i64>) {
  // CHECK: error: logical.attention: after query, key and value come a mask (float or i1) and a position (integer)
  %0 = logical.attention %q, %q, %q, %p, %m {causal} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<i64>, tensor<5x5xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @window(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: window is 0; it is the number of keys that a query sees, 1 or more
  %0 = logical.attention %q, %q, %q {causal, window = 0} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @window_alone(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: window without causal has no meaning; add causal or drop window
  %0 = logical.attention %q, %q, %q {window = 3} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}

// -----

func.func @cap(%q : tensor<1x5x8xf32>) {
  // CHECK: error: logical.attention: softcap is -1.0; it is finite and above 0
  %0 = logical.attention %q, %q, %q {softcap = -1.0 : f64} : (tensor<1x5x8xf32>, tensor<1x5x8xf32>, tensor<1x5x8xf32>) -> tensor<1x5x8xf32>
  func.return
}
