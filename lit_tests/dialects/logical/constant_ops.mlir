// RUN: aicf-opt %s | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @constants
func.func @constants() {
  // A splat may have any shape, symbolic too.
  // CHECK-NEXT: logical.constant dense<5.000000e-01> : tensor<?x10xf32, #logical.dims<["N", ""]>>
  %0 = logical.constant dense<0.5> : tensor<?x10xf32, #logical.dims<["N", ""]>>
  // CHECK-NEXT: logical.constant dense<-1> {aicf.id = "c"} : tensor<3000x3000xi64>
  %1 = logical.constant dense<-1> {aicf.id = "c"} : tensor<3000x3000xi64>
  // CHECK-NEXT: logical.constant dense<{{\[\[}}1, 2], [3, 255]]> : tensor<2x2xui8>
  %2 = logical.constant dense<[[1, 2], [3, 255]]> : tensor<2x2xui8>
  // CHECK-NEXT: logical.constant dense<[true, false]> : tensor<2xi1>
  %3 = logical.constant dense<[true, false]> : tensor<2xi1>
  // CHECK-NEXT: logical.constant dense<[1.500000e+00, -2.000000e+00]> : tensor<2xbf16>
  %4 = logical.constant dense<[1.5, -2.0]> : tensor<2xbf16>
  // Equal elements are a splat.
  // CHECK-NEXT: logical.constant dense<7> : tensor<2xi32>
  %5 = logical.constant dense<[7, 7]> : tensor<2xi32>
  // A hexadecimal number is the bits of a float; -0.0 keeps its sign.
  // CHECK-NEXT: logical.constant dense<0x7f800000> : tensor<2xf32>
  %6 = logical.constant dense<0x7F800000> : tensor<2xf32>
  // CHECK-NEXT: logical.constant dense<-0.000000e+00> : tensor<f64>
  %7 = logical.constant dense<-0.0> : tensor<f64>
  // CHECK-NEXT: logical.constant dense<1.000000e-01> : tensor<f32>
  %8 = logical.constant dense<0.1> : tensor<f32>
  // The bytes of all elements, as the printer writes more than 100 of them.
  // CHECK-NEXT: logical.constant dense<[0, 1, -1]> : tensor<3xi8>
  %9 = logical.constant dense<"0x0001FF"> : tensor<3xi8>
  func.return
}
