// RUN: aicf-opt %s | filecheck %s
// RUN: aicf-opt %s | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @training
func.func @training(%x : tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  // CHECK-NEXT: %0 = logical.save %x : tensor<4x6xf32>
  %0 = logical.save %x : tensor<4x6xf32>
  %1 = logical.reduce_sum %x {axes = [0, 1]} : tensor<4x6xf32> -> tensor<f32>
  // CHECK: %2 = logical.gradient %1, %x : (tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = logical.gradient %1, %x : (tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %0, %2 : tensor<4x6xf32>, tensor<4x6xf32>
}

// Nothing is passed back through it.
// CHECK-LABEL: func.func @detached
func.func @detached(%x : tensor<4x6xf32>) -> tensor<4x6xf32> {
  // CHECK-NEXT: %0 = logical.detach %x : tensor<4x6xf32>
  %0 = logical.detach %x : tensor<4x6xf32>
  func.return %0 : tensor<4x6xf32>
}

// The number of the step, and what follows from it.
// CHECK-LABEL: func.func @counters
func.func @counters(%n : tensor<i64>) {
  // CHECK-NEXT: %0 = logical.step_inc %n : tensor<i64>
  %0 = logical.step_inc %n : tensor<i64>
  // CHECK-NEXT: %1 = logical.bias_corr %0 {beta = 9.000000e-01 : f64} : tensor<i64> -> tensor<f32>
  %1 = logical.bias_corr %0 {beta = 0.9} : tensor<i64> -> tensor<f32>
  // CHECK-NEXT: %2 = logical.learning_rate %0 {schedule = "constant", base = 1.000000e-01 : f64, warmup = 0, total = 0, final = 0.000000e+00 : f64} : tensor<i64> -> tensor<f32>
  %2 = logical.learning_rate %0 {schedule = "constant", base = 0.1} : tensor<i64> -> tensor<f32>
  // CHECK-NEXT: %3 = logical.learning_rate %0 {schedule = "cosine", base = 1.000000e-01 : f64, warmup = 10, total = 100, final = 1.000000e-02 : f64} : tensor<i64> -> tensor<f64>
  %3 = logical.learning_rate %0 {schedule = "cosine", base = 0.1, warmup = 10, total = 100, final = 0.01} : tensor<i64> -> tensor<f64>
  func.return
}

// Rates that fall by steps, and of one cycle.
// CHECK-LABEL: func.func @more_rates
func.func @more_rates(%s : tensor<i64>) {
  // CHECK-NEXT: %0 = logical.step_rate %s {base = 1.000000e-01 : f64, factor = 5.000000e-01 : f64, warmup = 0, period = 30, milestones = []} : tensor<i64> -> tensor<f32>
  %0 = logical.step_rate %s {base = 0.1, factor = 0.5, period = 30} : tensor<i64> -> tensor<f32>
  // CHECK-NEXT: %1 = logical.step_rate %s {base = 1.000000e-01 : f64, factor = 5.000000e-01 : f64, warmup = 2, period = 0, milestones = [4, 9]} : tensor<i64> -> tensor<f64>
  %1 = logical.step_rate %s {base = 0.1, factor = 0.5, warmup = 2, milestones = [4, 9]} : tensor<i64> -> tensor<f64>
  // CHECK-NEXT: %2 = logical.one_cycle_rate %s {anneal = "cosine", base = 1.000000e-01 : f64, peak = 1.000000e+00 : f64, final = 0.000000e+00 : f64, rise = 2.500000e+00 : f64, total = 9} : tensor<i64> -> tensor<f32>
  %2 = logical.one_cycle_rate %s {anneal = "cosine", base = 0.1, peak = 1.0, final = 0.0, rise = 2.5, total = 9} : tensor<i64> -> tensor<f32>
  func.return
}
