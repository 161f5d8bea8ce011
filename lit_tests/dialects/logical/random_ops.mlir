// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Words of the stream of a seed and an offset, and what is made of them.
// CHECK-LABEL: func.func @random
func.func @random(%s : tensor<i64>, %o : tensor<i64>, %i : tensor<4x6xi64>, %x : tensor<4x6xf16>) {
  // CHECK-NEXT: %0 = logical.philox %s, %o {form = "bits"} : (tensor<i64>, tensor<i64>) -> tensor<4x6xi32>
  %0 = logical.philox %s, %o {form = "bits"} : (tensor<i64>, tensor<i64>) -> tensor<4x6xi32>
  // CHECK-NEXT: %1 = logical.philox %s, %o {form = "uniform"} : (tensor<i64>, tensor<i64>) -> tensor<4x6xbf16>
  %1 = logical.philox %s, %o {form = "uniform"} : (tensor<i64>, tensor<i64>) -> tensor<4x6xbf16>
  // CHECK-NEXT: %2 = logical.philox %s, %o {form = "normal"} : (tensor<i64>, tensor<i64>) -> tensor<?x6xf32, #logical.dims<["N", ""]>>
  %2 = logical.philox %s, %o {form = "normal"} : (tensor<i64>, tensor<i64>) -> tensor<?x6xf32, #logical.dims<["N", ""]>>
  // CHECK-NEXT: %3 = logical.philox_word %i, %i, %i : tensor<4x6xi64> -> tensor<4x6xi32>
  %3 = logical.philox_word %i, %i, %i : tensor<4x6xi64> -> tensor<4x6xi32>
  // CHECK-NEXT: %4 = logical.dropout %x, %s, %o {rate = 1.000000e-01 : f64} : (tensor<4x6xf16>, tensor<i64>, tensor<i64>) -> tensor<4x6xf16>
  %4 = logical.dropout %x, %s, %o {rate = 0.1} : (tensor<4x6xf16>, tensor<i64>, tensor<i64>) -> tensor<4x6xf16>
  func.return
}
