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
