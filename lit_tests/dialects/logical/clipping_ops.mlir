// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @clipping
func.func @clipping(%a : tensor<4x6xf32>, %b : tensor<6xf32>, %c : tensor<f32>, %n : tensor<?x6xf64, #logical.dims<["N", ""]>>) {
  // CHECK-NEXT: %0 = logical.global_norm %a, %b, %c : (tensor<4x6xf32>, tensor<6xf32>, tensor<f32>) -> tensor<f32>
  %0 = logical.global_norm %a, %b, %c : (tensor<4x6xf32>, tensor<6xf32>, tensor<f32>) -> tensor<f32>
  // CHECK-NEXT: %1 = logical.clip_factor %0 {max_norm = 1.000000e+00 : f64} : tensor<f32>
  %1 = logical.clip_factor %0 {max_norm = 1.0} : tensor<f32>
  // CHECK-NEXT: %2 = logical.global_norm %n : (tensor<?x6xf64, #logical.dims<["N", ""]>>) -> tensor<f64>
  %2 = logical.global_norm %n : (tensor<?x6xf64, #logical.dims<["N", ""]>>) -> tensor<f64>
  func.return
}
