// RUN: aicf-opt %s -p fold-constants,logical-dce | filecheck %s

// A splat is folded as one element and stays a splat, whatever its shape; the constant takes the op's id.
// CHECK-LABEL: func.func @splats
func.func @splats() -> tensor<?x4096xf32, #logical.dims<["N", ""]>> {
  // CHECK-NEXT: logical.constant dense<-1.500000e+00> {aicf.id = "s", aicf.src = ["s", "n", "a", "b", "h"]} : tensor<?x4096xf32, #logical.dims<["N", ""]>>
  %h = logical.constant dense<0.5> {aicf.id = "h", aicf.src = ["h"]} : tensor<4096xf32>
  %b = logical.broadcast %h {dimensions = [1], aicf.id = "b", aicf.src = ["b"]} : tensor<4096xf32> -> tensor<?x4096xf32, #logical.dims<["N", ""]>>
  %a = logical.add %b, %b {aicf.id = "a", aicf.src = ["a"]} : tensor<?x4096xf32, #logical.dims<["N", ""]>>
  %n = logical.neg %a {aicf.id = "n", aicf.src = ["n"]} : tensor<?x4096xf32, #logical.dims<["N", ""]>>
  %s = logical.sub %n, %b {aicf.id = "s", aicf.src = ["s"]} : tensor<?x4096xf32, #logical.dims<["N", ""]>>
  func.return %s : tensor<?x4096xf32, #logical.dims<["N", ""]>>
}

// Small tensors fold element by element, through any op.
// CHECK-LABEL: func.func @elements
func.func @elements() -> (tensor<2xf32>, tensor<2x2xi32>, tensor<3xi1>) {
  %0 = logical.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: logical.constant dense<[4.000000e+00, 6.000000e+00]> : tensor<2xf32>
  %1 = logical.reduce_sum %0 {axes = [0]} : tensor<2x2xf32> -> tensor<2xf32>
  // CHECK-NEXT: logical.constant dense<{{\[\[}}1, 3], [2, 4]]> : tensor<2x2xi32>
  %2 = logical.transpose %0 {permutation = [1, 0]} : tensor<2x2xf32> -> tensor<2x2xf32>
  %3 = logical.cast %2 : tensor<2x2xf32> -> tensor<2x2xi32>
  // CHECK-NEXT: logical.constant dense<[true, false, false]> : tensor<3xi1>
  %4 = logical.constant dense<[-1, 0, 7]> : tensor<3xi8>
  %5 = logical.constant dense<0> : tensor<3xi8>
  %6 = logical.compare "lt" %4, %5 : tensor<3xi8> -> tensor<3xi1>
  func.return %1, %3, %6 : tensor<2xf32>, tensor<2x2xi32>, tensor<3xi1>
}

// The sum of a large splat of a few results is exact.
// CHECK-LABEL: func.func @sum
func.func @sum() -> tensor<4xf32> {
  // CHECK-NEXT: logical.constant dense<5.000000e+02> : tensor<4xf32>
  %0 = logical.constant dense<0.5> : tensor<4x1000xf32>
  %1 = logical.reduce_sum %0 {axes = [1]} : tensor<4x1000xf32> -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}

// Not representable in the type (a third, an irrational, an overflow), NaN, too large, not all operands constant: no folding.
// CHECK-LABEL: func.func @kept
func.func @kept(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf16>, tensor<4xf32>, tensor<2048xf32>) {
  // CHECK: logical.div
  %one = logical.constant dense<1.0> : tensor<4xf32>
  %three = logical.constant dense<3.0> : tensor<4xf32>
  %0 = logical.div %one, %three : tensor<4xf32>
  // CHECK-NEXT: logical.exp
  %1 = logical.exp %one : tensor<4xf32>
  // CHECK: logical.mul
  %big = logical.constant dense<60000.0> : tensor<4xf16>
  %2 = logical.mul %big, %big : tensor<4xf16>
  // CHECK: logical.sqrt
  %minus = logical.constant dense<-1.0> : tensor<4xf32>
  %3 = logical.sqrt %minus : tensor<4xf32>
  // CHECK-NEXT: logical.add
  %4 = logical.add %x, %one : tensor<4xf32>
  // CHECK-NEXT: logical.add
  %5 = logical.add %0, %1 : tensor<4xf32>
  // CHECK-NEXT: logical.add
  %6 = logical.add %5, %4 : tensor<4xf32>
  // CHECK: logical.broadcast
  %row = logical.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %7 = logical.broadcast %row {dimensions = [1]} : tensor<2xf32> -> tensor<1024x2xf32>
  %8 = logical.reshape %7 : tensor<1024x2xf32> -> tensor<2048xf32>
  func.return %6, %2, %3, %8 : tensor<4xf32>, tensor<4xf16>, tensor<4xf32>, tensor<2048xf32>
}
