// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @philox_form(%s : tensor<i64>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: form is "gamma"; use one of bits, uniform, normal
  %0 = logical.philox %s, %o {form = "gamma"} : (tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @philox_form_kind(%s : tensor<i64>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: form is 1 : i64; it is a string
  %0 = logical.philox %s, %o {form = 1} : (tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @philox_form_missing(%s : tensor<i64>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: form is missing; it is a string
  %0 = logical.philox %s, %o : (tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @philox_bits(%s : tensor<i64>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: bits are i32, not f32; cast them, or ask for another form
  %0 = logical.philox %s, %o {form = "bits"} : (tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @philox_float(%s : tensor<i64>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: numbers of form uniform are floats, not i32
  %0 = logical.philox %s, %o {form = "uniform"} : (tensor<i64>, tensor<i64>) -> tensor<4xi32>
  func.return
}

// -----

func.func @philox_seed(%s : tensor<i32>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: the seed is i32; it is one i64 of rank 0
  %0 = logical.philox %s, %o {form = "normal"} : (tensor<i32>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @philox_offset(%s : tensor<i64>, %o : tensor<1xi64>) {
  // CHECK: error: logical.philox: the offset is 1xi64; it is one i64 of rank 0
  %0 = logical.philox %s, %o {form = "normal"} : (tensor<i64>, tensor<1xi64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @philox_unknown(%s : tensor<i64>, %o : tensor<i64>) {
  // CHECK: error: logical.philox: unknown attribute 'lane'; it has: form
  %0 = logical.philox %s, %o {form = "bits", lane = 1} : (tensor<i64>, tensor<i64>) -> tensor<4xi32>
  func.return
}

// -----

func.func @philox_word_element(%i : tensor<4xi32>) {
  // CHECK: error: logical.philox_word: seed, offset and index are i32; cast them to i64
  %0 = logical.philox_word %i, %i, %i : tensor<4xi32> -> tensor<4xi32>
  func.return
}

// -----

func.func @philox_word_result(%i : tensor<4xi64>) {
  // CHECK: error: logical.philox_word: result type is 4xi64, but the operands give 4xi32
  %0 = logical.philox_word %i, %i, %i : tensor<4xi64> -> tensor<4xi64>
  func.return
}

// -----

func.func @dropout_rate(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: rate is 1.0; it is at least 0 and below 1
  %0 = logical.dropout %x, %s, %s {rate = 1.0} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @dropout_negative(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: rate is -0.5; it is at least 0 and below 1
  %0 = logical.dropout %x, %s, %s {rate = -0.5} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @dropout_rate_nan(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: rate is nan; it is at least 0 and below 1
  %0 = logical.dropout %x, %s, %s {rate = 0x7FF8000000000000 : f64} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @dropout_rate_kind(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: rate is 0 : i64; it is a number of type f64, such as 0.1
  %0 = logical.dropout %x, %s, %s {rate = 0} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @dropout_rate_missing(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: rate is missing; it is a number of type f64, such as 0.1
  %0 = logical.dropout %x, %s, %s : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @dropout_element(%x : tensor<4xi32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: not defined for i32; cast to a float type first
  %0 = logical.dropout %x, %s, %s {rate = 0.5} : (tensor<4xi32>, tensor<i64>, tensor<i64>) -> tensor<4xi32>
  func.return
}

// -----

func.func @dropout_seed(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: the seed is 4xf32; it is one i64 of rank 0
  %0 = logical.dropout %x, %x, %s {rate = 0.5} : (tensor<4xf32>, tensor<4xf32>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @dropout_result(%x : tensor<4xf32>, %s : tensor<i64>) {
  // CHECK: error: logical.dropout: result type is 4xf16, but the operands give 4xf32
  %0 = logical.dropout %x, %s, %s {rate = 0.5} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf16>
  func.return
}
