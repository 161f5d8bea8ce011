// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @steps
func.func @steps(%w : tensor<4x6xf32>, %g : tensor<4x6xf32>, %a : tensor<4x6xf32>, %b : tensor<4x6xf32>, %c : tensor<4x6xf32>, %lr : tensor<f32>, %n : tensor<i64>) {
  // Plain descent keeps no state.
  // CHECK-NEXT: %0 = logical.sgd %w, %g, %lr, %n {momentum = 0.000000e+00 : f64, dampening = 0.000000e+00 : f64, weight_decay = 0.000000e+00 : f64} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>) -> tensor<4x6xf32>
  %0 = logical.sgd %w, %g, %lr, %n : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>) -> tensor<4x6xf32>
  // CHECK-NEXT: %1, %2 = logical.sgd %w, %g, %lr, %n, %a {momentum = 9.000000e-01 : f64, dampening = 0.000000e+00 : f64, weight_decay = 1.000000e-02 : f64, nesterov} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
  %1, %2 = logical.sgd %w, %g, %lr, %n, %a {momentum = 0.9, weight_decay = 0.01, nesterov} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
  // What is not said is PyTorch's default.
  // CHECK-NEXT: %3, %4, %5 = logical.adam %w, %g, %lr, %n, %a, %b {beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 0.000000e+00 : f64} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>)
  %3, %4, %5 = logical.adam %w, %g, %lr, %n, %a, %b : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>)
  // CHECK-NEXT: %6, %7, %8, %9 = logical.adamw %w, %g, %lr, %n, %a, %b, %c {beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 1.000000e-02 : f64, amsgrad} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>)
  %6, %7, %8, %9 = logical.adamw %w, %g, %lr, %n, %a, %b, %c {weight_decay = 0.01, amsgrad} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<i64>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>)
  func.return
}
