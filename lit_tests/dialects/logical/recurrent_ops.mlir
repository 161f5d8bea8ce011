// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// All states of all steps, h before c; steps and batch may be symbolic.
// CHECK-LABEL: func.func @lstm
func.func @lstm(%x : tensor<5x3x16xf32>, %w : tensor<16x4xf32>, %f : tensor<2x3x4xf32>,
    %s : tensor<?x3x16xf32, #logical.dims<["S", "", ""]>>) -> tensor<2x5x3x4xf32> {
  // CHECK-NEXT: %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf32>, tensor<16x4xf32>, tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>
  %0 = logical.lstm %x, %w, %f : (tensor<5x3x16xf32>, tensor<16x4xf32>, tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>
  // CHECK-NEXT: %1 = logical.lstm %s, %w, %f {reverse} : (tensor<?x3x16xf32, #logical.dims<["S", "", ""]>>, tensor<16x4xf32>, tensor<2x3x4xf32>) -> tensor<2x?x3x4xf32, #logical.dims<["", "S", "", ""]>>
  %1 = logical.lstm %s, %w, %f {reverse = true} : (tensor<?x3x16xf32, #logical.dims<["S", "", ""]>>, tensor<16x4xf32>, tensor<2x3x4xf32>) -> tensor<2x?x3x4xf32, #logical.dims<["", "S", "", ""]>>
  func.return %0 : tensor<2x5x3x4xf32>
}
