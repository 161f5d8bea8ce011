// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @no_such_op(%x : tensor<4xf32>) {
  // CHECK: error: logical.custom: 'logical.swirl' is no op of the logical dialect
  %0 = logical.custom "logical.swirl" %x {version = 1, parameters = {}} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// What the op itself refuses, it refuses in one piece, too.
func.func @axis(%x : tensor<4xf32>) {
  // CHECK: error: logical.custom: axis 2 is out of range for rank 1; write 0 to 0
  %0 = logical.custom "logical.softmax" %x {version = 1, parameters = {axis = 2}} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @type(%x : tensor<4xf32>) {
  // CHECK: error: logical.custom: result type is 4xf64, but the operands give 4xf32
  %0 = logical.custom "logical.softmax" %x {version = 1, parameters = {axis = 0}} : (tensor<4xf32>) -> tensor<4xf64>
  func.return
}

// -----

// CHECK: error: logical.custom: unknown attribute 'p'; it has: op, version, parameters
func.func @stray(%x : tensor<4xf32>) {
  %0 = logical.custom "acme.top_p" %x {version = 1, parameters = {}, p = 0.9} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}
