// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// As many places as there are boxes, or as many as are asked for; samples and classes may be symbolic.
// CHECK-LABEL: func.func @non_max_suppression
func.func @non_max_suppression(%b : tensor<2x9x4xf32>, %s : tensor<2x3x9xf32>, %o : tensor<f32>, %f : tensor<f32>,
    %sb : tensor<?x9x4xf32, #logical.dims<["S", "", ""]>>, %ss : tensor<?x?x9xf32, #logical.dims<["S", "C", ""]>>)
    -> tensor<2x3x5xi64> {
  // CHECK-NEXT: %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<2x9x4xf32>, tensor<2x3x9xf32>, tensor<f32>) -> tensor<2x3x5xi64>
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<2x9x4xf32>, tensor<2x3x9xf32>, tensor<f32>) -> tensor<2x3x5xi64>
  // CHECK-NEXT: %1 = logical.non_max_suppression %b, %s, %o, %f {limit = 99, centred} : (tensor<2x9x4xf32>, tensor<2x3x9xf32>, tensor<f32>, tensor<f32>) -> tensor<2x3x9xi64>
  %1 = logical.non_max_suppression %b, %s, %o, %f {limit = 99, centred = true} : (tensor<2x9x4xf32>, tensor<2x3x9xf32>, tensor<f32>, tensor<f32>) -> tensor<2x3x9xi64>
  // CHECK-NEXT: %2 = logical.non_max_suppression %sb, %ss, %o {limit = 5} : {{.*}} -> tensor<?x?x5xi64, #logical.dims<["S", "C", ""]>>
  %2 = logical.non_max_suppression %sb, %ss, %o {limit = 5} : (tensor<?x9x4xf32, #logical.dims<["S", "", ""]>>, tensor<?x?x9xf32, #logical.dims<["S", "C", ""]>>, tensor<f32>) -> tensor<?x?x5xi64, #logical.dims<["S", "C", ""]>>
  func.return %0 : tensor<2x3x5xi64>
}
