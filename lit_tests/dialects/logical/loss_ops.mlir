// RUN: aicf-opt %s | filecheck %s
// RUN: aicf-opt %s | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @losses
func.func @losses(%x : tensor<4x6xf32>, %t : tensor<4x6xf32>, %n : tensor<4xi64>, %m : tensor<6xi32>)
    -> (tensor<f32>, tensor<f32>, tensor<4x6xf32>, tensor<f32>, tensor<6xf32>) {
  // CHECK-NEXT: %0 = logical.mse_loss %x, %t {reduction = "mean"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
  %0 = logical.mse_loss %x, %t {reduction = "mean"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
  // CHECK-NEXT: %1 = logical.huber_loss %x, %t {delta = 5.000000e-01 : f64, reduction = "sum"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
  %1 = logical.huber_loss %x, %t {reduction = "sum", delta = 0.5 : f64} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
  // CHECK-NEXT: %2 = logical.bce_with_logits %x, %t {reduction = "none"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = logical.bce_with_logits %x, %t {reduction = "none"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  // What is not said is PyTorch's default.
  // CHECK-NEXT: %3 = logical.cross_entropy %x, %n {axis = 1, ignore_index = -100, label_smoothing = 0.000000e+00 : f64, reduction = "mean"} : (tensor<4x6xf32>, tensor<4xi64>) -> tensor<f32>
  %3 = logical.cross_entropy %x, %n {axis = 1} : (tensor<4x6xf32>, tensor<4xi64>) -> tensor<f32>
  // CHECK-NEXT: %4 = logical.cross_entropy %x, %m {axis = 0, ignore_index = 2, label_smoothing = 1.000000e-01 : f64, reduction = "none"} : (tensor<4x6xf32>, tensor<6xi32>) -> tensor<6xf32>
  %4 = logical.cross_entropy %x, %m {axis = 0, reduction = "none", ignore_index = 2, label_smoothing = 0.1 : f64} : (tensor<4x6xf32>, tensor<6xi32>) -> tensor<6xf32>
  func.return %0, %1, %2, %3, %4 : tensor<f32>, tensor<f32>, tensor<4x6xf32>, tensor<f32>, tensor<6xf32>
}
