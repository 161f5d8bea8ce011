// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @rank(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.max_pool: operand 2x3xf32 has rank 2; it is [N, C, S1..Sk] with one spatial dimension or more
  %0 = logical.max_pool %x {sizes = [], strides = [], dilations = [], low = [], high = []} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @counts(%x : tensor<2x3x4x5xf32>) {
  // CHECK: error: logical.max_pool: strides [1] has 1 value for 2 spatial dimensions
  %0 = logical.max_pool %x {sizes = [2, 2], strides = [1], dilations = [1, 1], low = [0, 0], high = [0, 0]} : tensor<2x3x4x5xf32> -> tensor<2x3x3x4xf32>
  func.return
}

// -----

func.func @least(%x : tensor<2x3x4xf32>) {
  // CHECK: error: logical.avg_pool: sizes [0] has a value below 1
  %0 = logical.avg_pool %x {sizes = [0], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  func.return
}

// -----

func.func @negative(%x : tensor<2x3x4xf32>) {
  // CHECK: error: logical.avg_pool: high [-1] has a value below 0
  %0 = logical.avg_pool %x {sizes = [2], strides = [1], dilations = [1], low = [0], high = [-1]} : tensor<2x3x4xf32> -> tensor<2x3x2xf32>
  func.return
}

// -----

func.func @symbolic(%x : tensor<2x3x?xf32, #logical.dims<["", "", "L"]>>) {
  // CHECK: error: logical.max_pool: dimension 2 of 2x3xL is symbolic; windows slide along dimensions of known size
  %0 = logical.max_pool %x {sizes = [2], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<2x3x?xf32, #logical.dims<["", "", "L"]>> -> tensor<2x3x?xf32, #logical.dims<["", "", "L"]>>
  func.return
}

// -----

func.func @small(%x : tensor<2x3x4xf32>) {
  // CHECK: error: logical.max_pool: dimension 2 of 2x3x4 is smaller than a window, padding included
  %0 = logical.max_pool %x {sizes = [3], strides = [1], dilations = [3], low = [1], high = [1]} : tensor<2x3x4xf32> -> tensor<2x3x1xf32>
  func.return
}

// -----

func.func @element(%x : tensor<2x3x4xi32>) {
  // CHECK: error: logical.avg_pool: not defined for i32; cast to a float type first
  %0 = logical.avg_pool %x {sizes = [3], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<2x3x4xi32> -> tensor<2x3x2xi32>
  func.return
}

// -----

func.func @truth(%x : tensor<2x3x4xi1>) {
  // CHECK: error: logical.max_pool_indices: not defined for i1; cast to a number first
  %0 = logical.max_pool_indices %x {sizes = [3], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<2x3x4xi1> -> tensor<2x3x2xi64>
  func.return
}

// -----

func.func @power(%x : tensor<2x3x4xf32>) {
  // CHECK: error: logical.lp_pool: p is 0; it is a whole number of at least 1
  %0 = logical.lp_pool %x {sizes = [3], strides = [1], dilations = [1], low = [0], high = [0], p = 0} : tensor<2x3x4xf32> -> tensor<2x3x2xf32>
  func.return
}

// -----

func.func @many_taps(%x : tensor<2x3x140xf32>) {
  // CHECK: error: logical.max_pool_taps: a window has 128 elements, and an i8 counts 127; use logical.max_pool_indices
  %0 = logical.max_pool_taps %x {sizes = [128], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<2x3x140xf32> -> tensor<2x3x13xi8>
  func.return
}

// -----

func.func @integers(%x : tensor<2x3x14xi32>) {
  // CHECK: error: logical.max_pool_taps: not defined for i32; cast to a float type first
  %0 = logical.max_pool_taps %x {sizes = [2], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<2x3x14xi32> -> tensor<2x3x13xi8>
  func.return
}

// -----

func.func @other_windows(%t : tensor<2x3x5xi8>, %g : tensor<2x3x4xf32>) {
  // CHECK: error: logical.max_pool_grad: taps {{.*}} and grad {{.*}} are an i8 and a float for each window: [N, C, O1..Ok] both
  %0 = logical.max_pool_grad %t, %g {whole = [9], sizes = [2], strides = [2], dilations = [1], low = [0]} : (tensor<2x3x5xi8>, tensor<2x3x4xf32>) -> tensor<2x3x9xf32>
  func.return
}

// -----

func.func @whole(%t : tensor<2x3x4xi8>, %g : tensor<2x3x4xf32>) {
  // CHECK: error: logical.max_pool_grad: whole [9, 9] has 2 values for 1 spatial dimension of 2x3x4
  %0 = logical.max_pool_grad %t, %g {whole = [9, 9], sizes = [2], strides = [2], dilations = [1], low = [0]} : (tensor<2x3x4xi8>, tensor<2x3x4xf32>) -> tensor<2x3x9xf32>
  func.return
}

// -----

func.func @integer_grad(%t : tensor<2x3x4xi8>, %g : tensor<2x3x4xi32>) {
  // CHECK: error: logical.max_pool_grad: not defined for i32; cast to a float type first
  %0 = logical.max_pool_grad %t, %g {whole = [9], sizes = [2], strides = [2], dilations = [1], low = [0]} : (tensor<2x3x4xi8>, tensor<2x3x4xi32>) -> tensor<2x3x9xi32>
  func.return
}
