// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @vector(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: logical.gradient: the loss is 4xf32; it is one float of rank 0, such as a reduce_mean over all axes
  %0 = logical.gradient %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @integers(%l : tensor<f32>, %x : tensor<4xi64>) -> tensor<4xi64> {
  // CHECK: logical.gradient: 4xi64 has no derivative by it; only floats have
  %0 = logical.gradient %l, %x : (tensor<f32>, tensor<4xi64>) -> tensor<4xi64>
  func.return %0 : tensor<4xi64>
}

// -----

func.func @counter(%n : tensor<i32>) {
  // CHECK: logical.step_inc: the step is i32; it is one i64 of rank 0
  %0 = logical.step_inc %n : tensor<i32>
  func.return
}

// -----

func.func @beta(%n : tensor<i64>) {
  // CHECK: logical.bias_corr: beta is 1.0; it is 0 or more and below 1
  %0 = logical.bias_corr %n {beta = 1.0} : tensor<i64> -> tensor<f32>
  func.return
}

// -----

func.func @no_beta(%n : tensor<i64>) {
  // CHECK: logical.bias_corr: beta is missing; it is a number of type f64, such as 0.5
  %0 = logical.bias_corr %n : tensor<i64> -> tensor<f32>
  func.return
}

// -----

func.func @short_number(%n : tensor<i64>) {
  // CHECK: logical.bias_corr: the result is bf16; it is one f32 or f64 of rank 0
  %0 = logical.bias_corr %n {beta = 0.9} : tensor<i64> -> tensor<bf16>
  func.return
}

// -----

func.func @schedule(%n : tensor<i64>) {
  // CHECK: logical.learning_rate: schedule is "sine"; use one of constant, linear, cosine
  %0 = logical.learning_rate %n {schedule = "sine", base = 0.1} : tensor<i64> -> tensor<f32>
  func.return
}

// -----

func.func @negative_rate(%n : tensor<i64>) {
  // CHECK: logical.learning_rate: base is -0.1; it is 0 or more
  %0 = logical.learning_rate %n {schedule = "constant", base = -0.1} : tensor<i64> -> tensor<f32>
  func.return
}

// -----

func.func @negative_warmup(%n : tensor<i64>) {
  // CHECK: logical.learning_rate: warmup is -1; it is a number of steps, 0 or more
  %0 = logical.learning_rate %n {schedule = "constant", base = 0.1, warmup = -1} : tensor<i64> -> tensor<f32>
  func.return
}

// -----

func.func @no_end(%n : tensor<i64>) {
  // CHECK: logical.learning_rate: total is 10; it is more than the 10 steps of warmup
  %0 = logical.learning_rate %n {schedule = "linear", base = 0.1, warmup = 10, total = 10} : tensor<i64> -> tensor<f32>
  func.return
}
