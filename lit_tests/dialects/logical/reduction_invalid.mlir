// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @axis_range(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_sum: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.reduce_sum %x {axes = [2]} : tensor<2x3xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @negative(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_sum: axis -1 is out of range for rank 2; write 0 to 1
  %0 = logical.reduce_sum %x {axes = [-1]} : tensor<2x3xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @order(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_max: axes [1, 0, 1] must be sorted and unique; write [0, 1]
  %0 = logical.reduce_max %x {axes = [1, 0, 1]} : tensor<2x3xf32> -> tensor<f32>
  func.return
}

// -----

func.func @none(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_max: axes is empty; name at least one dimension to reduce
  %0 = logical.reduce_max %x {axes = []} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @missing(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_max: axes is missing; it is a list of integers, such as [0, 1]
  %0 = logical.reduce_max %x : tensor<2x3xf32> -> tensor<f32>
  func.return
}

// -----

func.func @kind(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_max: axes is 1 : i64; it is a list of integers, such as [0, 1]
  %0 = logical.reduce_max %x {axes = 1} : tensor<2x3xf32> -> tensor<f32>
  func.return
}

// -----

func.func @singular(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_max: unknown attribute 'axis'; it has: axes, keepdims
  %0 = logical.reduce_max %x {axis = 1} : tensor<2x3xf32> -> tensor<f32>
  func.return
}

// -----

func.func @keepdims(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_sum: result type is 2xf32, but the operands give 2x1xf32
  %0 = logical.reduce_sum %x {axes = [1], keepdims} : tensor<2x3xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @mean(%x : tensor<2x3xi32>) {
  // CHECK: error: logical.reduce_mean: not defined for i32; cast to a float type first
  %0 = logical.reduce_mean %x {axes = [1]} : tensor<2x3xi32> -> tensor<2xi32>
  func.return
}

// -----

func.func @bool(%x : tensor<2x3xi1>) {
  // CHECK: error: logical.reduce_sum: not defined for i1; cast to a number first
  %0 = logical.reduce_sum %x {axes = [1]} : tensor<2x3xi1> -> tensor<2xi1>
  func.return
}

// -----

func.func @softmax(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.softmax: axis is array<i64: 1>; it is an integer
  %0 = logical.softmax %x {axis = [1]} : tensor<2x3xf32>
  func.return
}

// -----

func.func @scale(%x : tensor<2x3xf32>, %s : tensor<2xf32>) {
  // CHECK: error: logical.layer_norm: scale is 2xf32, but dimensions 1 to 1 of 2x3xf32 need 3xf32
  %0 = logical.layer_norm %x, %s, %s {axis = 1} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @epsilon(%x : tensor<2x3xf32>, %s : tensor<3xf32>) {
  // CHECK: error: logical.layer_norm: epsilon is 0.0; it is positive and finite
  %0 = logical.layer_norm %x, %s, %s {axis = 1, epsilon = 0.0} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @epsilon_type(%x : tensor<2x3xf32>, %s : tensor<3xf32>) {
  // CHECK: error: logical.layer_norm: epsilon is 1.000000e-05 : f32; it is a number of type f64, such as 1.0e-05
  %0 = logical.layer_norm %x, %s, %s {axis = 1, epsilon = 1.0e-5 : f32} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @prod_bool(%x : tensor<2x3xi1>) {
  // CHECK: error: logical.reduce_prod: not defined for i1; cast to a number first
  %0 = logical.reduce_prod %x {axes = [1]} : tensor<2x3xi1> -> tensor<2xi1>
  func.return
}

// -----

func.func @l2(%x : tensor<2x3xi32>) {
  // CHECK: error: logical.reduce_l2: not defined for i32; cast to a float type first
  %0 = logical.reduce_l2 %x {axes = [1]} : tensor<2x3xi32> -> tensor<2xi32>
  func.return
}

// -----

func.func @logsumexp(%x : tensor<2x3xi32>) {
  // CHECK: error: logical.reduce_logsumexp: not defined for i32; cast to a float type first
  %0 = logical.reduce_logsumexp %x {axes = [1]} : tensor<2x3xi32> -> tensor<2xi32>
  func.return
}

// -----

func.func @any(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.reduce_any: result type is 2xf32, but the operands give 2xi1
  %0 = logical.reduce_any %x {axes = [1]} : tensor<2x3xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @log_softmax(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.log_softmax: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.log_softmax %x {axis = 2} : tensor<2x3xf32>
  func.return
}

// -----

func.func @rms_scale(%x : tensor<2x3xf32>, %s : tensor<2xf32>) {
  // CHECK: error: logical.rms_norm: scale is 2xf32, but dimensions 1 to 1 of 2x3xf32 need 3xf32
  %0 = logical.rms_norm %x, %s {axis = 1} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @rms_epsilon(%x : tensor<2x3xf32>, %s : tensor<3xf32>) {
  // CHECK: error: logical.rms_norm: epsilon is -1.0; it is positive and finite
  %0 = logical.rms_norm %x, %s {axis = 1, epsilon = -1.0} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @batch_rank(%x : tensor<3xf32>, %s : tensor<3xf32>) {
  // CHECK: error: logical.batch_norm: operand 3xf32 has rank 1; it is [N, C, ...], channels along dimension 1
  %0 = logical.batch_norm %x, %s, %s, %s, %s : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return
}

// -----

func.func @batch_channels(%x : tensor<2x6x4xf32>, %s : tensor<6xf32>, %v : tensor<4xf32>) {
  // CHECK: error: logical.batch_norm: variance is 4xf32, but the channels of 2x6x4xf32 (dimension 1) need 6xf32
  %0 = logical.batch_norm %x, %s, %s, %s, %v : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<4xf32>) -> tensor<2x6x4xf32>
  func.return
}

// -----

func.func @batch_epsilon(%x : tensor<2x3xf32>, %s : tensor<3xf32>) {
  // CHECK: error: logical.batch_norm: epsilon is 0.0; it is positive and finite
  %0 = logical.batch_norm %x, %s, %s, %s, %s {epsilon = 0.0} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return
}

// -----

func.func @groups(%x : tensor<2x6x4xf32>, %s : tensor<6xf32>) {
  // CHECK: error: logical.group_norm: groups is 4; it divides the 6 channels of 2x6x4xf32
  %0 = logical.group_norm %x, %s, %s {groups = 4} : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  func.return
}

// -----

func.func @groups_missing(%x : tensor<2x6x4xf32>, %s : tensor<6xf32>) {
  // CHECK: error: logical.group_norm: groups is missing; it is an integer
  %0 = logical.group_norm %x, %s, %s : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  func.return
}

// -----

func.func @groups_kind(%x : tensor<2x6x4xf32>, %s : tensor<6xf32>) {
  // CHECK: error: logical.group_norm: groups is "2"; it is an integer
  %0 = logical.group_norm %x, %s, %s {groups = "2"} : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  func.return
}

// -----

func.func @groups_symbolic(%x : tensor<2x?xf32, #logical.dims<["", "C"]>>, %s : tensor<?xf32, #logical.dims<["C"]>>) {
  // CHECK: error: logical.group_norm: the channels of 2xCxf32 are symbolic; give dimension 1 a number
  %0 = logical.group_norm %x, %s, %s {groups = 2} : (tensor<2x?xf32, #logical.dims<["", "C"]>>, tensor<?xf32, #logical.dims<["C"]>>, tensor<?xf32, #logical.dims<["C"]>>) -> tensor<2x?xf32, #logical.dims<["", "C"]>>
  func.return
}

// -----

func.func @cumsum_bool(%x : tensor<2x3xi1>) {
  // CHECK: error: logical.cumsum: not defined for i1; cast to a number first
  %0 = logical.cumsum %x {axis = 1} : tensor<2x3xi1>
  func.return
}

// -----

func.func @cumsum_axis(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.cumsum: axis 2 is out of range for rank 2; write 0 to 1
  %0 = logical.cumsum %x {axis = 2} : tensor<2x3xf32>
  func.return
}

// -----

func.func @cumsum_missing(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.cumsum: axis is missing; it is an integer
  %0 = logical.cumsum %x {reverse} : tensor<2x3xf32>
  func.return
}

// -----

func.func @cumsum_flag(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.cumsum: exclusive is 1 : i64; it is a flag: write its name alone
  %0 = logical.cumsum %x {axis = 0, exclusive = 1} : tensor<2x3xf32>
  func.return
}

// -----

func.func @argmax_axis(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.argmax: axis -1 is out of range for rank 2; write 0 to 1
  %0 = logical.argmax %x {axis = -1} : tensor<2x3xf32> -> tensor<2xi64>
  func.return
}

// -----

func.func @argmax_type(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.argmax: result type is 2xi32, but the operands give 2xi64
  %0 = logical.argmax %x {axis = 1} : tensor<2x3xf32> -> tensor<2xi32>
  func.return
}

// -----

func.func @argmin_missing(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.argmin: axis is missing; it is an integer
  %0 = logical.argmin %x : tensor<2x3xf32> -> tensor<2xi64>
  func.return
}

// -----

func.func @argmin_axes(%x : tensor<2x3xf32>) {
  // CHECK: error: logical.argmin: unknown attribute 'axes'; it has: axis, keepdims
  %0 = logical.argmin %x {axes = [1]} : tensor<2x3xf32> -> tensor<2xi64>
  func.return
}
