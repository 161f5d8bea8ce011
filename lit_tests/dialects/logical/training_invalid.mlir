// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @vector(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: logical.gradient: the loss is 4xf32; it is one float of rank 0, such as a reduce_mean over all axes
  %0 = logical.gradient %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @integers(%l : tensor<f32>, %x : tensor<4xi64>) -> tensor<4xi64> {
  // CHECK: logical.gradient: 4xi64 has no derivative by it; only floats have
  %0 = logical.gradient %l, %x : (tensor<f32>, tensor<4xi64>) -> tensor<4xi64>
  func.return %0 : tensor<4xi64>
}
