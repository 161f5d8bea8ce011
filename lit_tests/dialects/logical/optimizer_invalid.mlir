// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @short_parameter(%w : tensor<4xbf16>, %lr : tensor<bf16>, %n : tensor<i64>) {
  // CHECK: logical.sgd: the parameter is 4xbf16; keep it in f32 and cast it where it is used
  %0 = logical.sgd %w, %w, %lr, %n : (tensor<4xbf16>, tensor<4xbf16>, tensor<bf16>, tensor<i64>) -> tensor<4xbf16>
  func.return
}

// -----

func.func @integers(%w : tensor<4xi32>, %lr : tensor<i32>, %n : tensor<i64>) {
  // CHECK: logical.sgd: not defined for i32; cast to a float type first
  %0 = logical.sgd %w, %w, %lr, %n : (tensor<4xi32>, tensor<4xi32>, tensor<i32>, tensor<i64>) -> tensor<4xi32>
  func.return
}

// -----

func.func @gradient(%w : tensor<4xf32>, %g : tensor<1x4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.sgd: gradient is 1x4xf32, the parameter 4xf32; their types are equal
  %0 = logical.sgd %w, %g, %lr, %n : (tensor<4xf32>, tensor<1x4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @rate(%w : tensor<4xf32>, %lr : tensor<f64>, %n : tensor<i64>) {
  // CHECK: logical.sgd: the learning rate is f64; it is one f32 of rank 0
  %0 = logical.sgd %w, %w, %lr, %n : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @step(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<1xi64>) {
  // CHECK: logical.sgd: the step is 1xi64; it is one i64 of rank 0
  %0 = logical.sgd %w, %w, %lr, %n : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @state_too_many(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.sgd: 1 state given; these options have: none
  %0, %1 = logical.sgd %w, %w, %lr, %n, %w : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return
}

// -----

func.func @states_too_few(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.adam: 2 states given; these options have: exp_avg, exp_avg_sq, max_exp_avg_sq
  %0, %1, %2 = logical.adam %w, %w, %lr, %n, %w, %w {amsgrad} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  func.return
}

// -----

func.func @state_of_another_shape(%w : tensor<4xf32>, %m : tensor<6xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.adamw: exp_avg_sq is 6xf32, the parameter 4xf32; their types are equal
  %0, %1, %2 = logical.adamw %w, %w, %lr, %n, %w, %m : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>, tensor<6xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<6xf32>)
  func.return
}

// -----

func.func @results(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.sgd: further result types are none, but the operands give 4xf32
  %0 = logical.sgd %w, %w, %lr, %n, %w {momentum = 0.9} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @negative(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.sgd: weight_decay is -0.1; it is 0 or more
  %0 = logical.sgd %w, %w, %lr, %n {weight_decay = -0.1} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @nesterov_alone(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.sgd: nesterov with momentum 0.0 and dampening 0.0; it wants a momentum and no dampening
  %0 = logical.sgd %w, %w, %lr, %n {nesterov} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  func.return
}

// -----

func.func @beta(%w : tensor<4xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // CHECK: logical.adam: beta2 is 1.0; it is below 1
  %0, %1, %2 = logical.adam %w, %w, %lr, %n, %w, %w {beta2 = 1.0} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  func.return
}
