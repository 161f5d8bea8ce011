// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// Ops of this dialect in one piece, with their own properties as parameters.
// CHECK-LABEL: func.func @whole
func.func @whole(%x : tensor<4x10xf32>, %w : tensor<10xf32>) -> tensor<4x10xf32> {
  // CHECK-NEXT: %0 = logical.custom "logical.softmax" %x {version = 1, parameters = {axis = 1 : i64}} : (tensor<4x10xf32>) -> tensor<4x10xf32>
  %0 = logical.custom "logical.softmax" %x {version = 1, parameters = {axis = 1}} : (tensor<4x10xf32>) -> tensor<4x10xf32>
  func.return %0 : tensor<4x10xf32>
}

// An op that no package defines here parses and prints; a compile refuses it. Its type is stated.
// CHECK-LABEL: func.func @undefined
func.func @undefined(%x : tensor<?x10xf32, #logical.dims<["N", ""]>>) -> tensor<?x3xi64, #logical.dims<["N", ""]>> {
  // CHECK-NEXT: %0 = logical.custom "acme.best" %x {version = 2, parameters = {k = 3 : i64, ties = "first"}} : (tensor<?x10xf32, #logical.dims<["N", ""]>>) -> tensor<?x3xi64, #logical.dims<["N", ""]>>
  %0 = logical.custom "acme.best" %x {version = 2, parameters = {k = 3, ties = "first"}} : (tensor<?x10xf32, #logical.dims<["N", ""]>>) -> tensor<?x3xi64, #logical.dims<["N", ""]>>
  func.return %0 : tensor<?x3xi64, #logical.dims<["N", ""]>>
}
