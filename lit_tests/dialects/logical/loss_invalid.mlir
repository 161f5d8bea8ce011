// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @shapes(%x : tensor<4x6xf32>, %t : tensor<6x4xf32>) -> tensor<f32> {
  // CHECK: logical.mse_loss: operand types differ: 4x6xf32 and 6x4xf32
  %0 = logical.mse_loss %x, %t : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @integers(%x : tensor<4xi32>) -> tensor<i32> {
  // CHECK: logical.mse_loss: not defined for i32; cast to a float type first
  %0 = logical.mse_loss %x, %x : (tensor<4xi32>, tensor<4xi32>) -> tensor<i32>
  func.return %0 : tensor<i32>
}

// -----

func.func @reduction(%x : tensor<4xf32>) -> tensor<f32> {
  // CHECK: logical.bce_with_logits: reduction is "average"; use one of mean, sum, none
  %0 = logical.bce_with_logits %x, %x {reduction = "average"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @result(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: logical.bce_with_logits: result type is 4xf32, but the operands give f32
  %0 = logical.bce_with_logits %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @delta(%x : tensor<4xf32>) -> tensor<f32> {
  // CHECK: logical.huber_loss: delta is 0.0; it is positive and finite
  %0 = logical.huber_loss %x, %x {delta = 0.0 : f64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @labels(%x : tensor<4x6xf32>, %n : tensor<4xf32>) -> tensor<f32> {
  // CHECK: logical.cross_entropy: labels are f32; cast them to i32 or i64
  %0 = logical.cross_entropy %x, %n {axis = 1} : (tensor<4x6xf32>, tensor<4xf32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @label_shape(%x : tensor<4x6xf32>, %n : tensor<6xi64>) -> tensor<f32> {
  // CHECK: logical.cross_entropy: labels have shape 6; they have that of 4x6 without dimension 1
  %0 = logical.cross_entropy %x, %n {axis = 1} : (tensor<4x6xf32>, tensor<6xi64>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @no_axis(%x : tensor<4x6xf32>, %n : tensor<6xi64>) -> tensor<f32> {
  // CHECK: logical.cross_entropy: axis is missing; it is an integer
  %0 = logical.cross_entropy %x, %n : (tensor<4x6xf32>, tensor<6xi64>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @smoothing(%x : tensor<4x6xf32>, %n : tensor<4xi64>) -> tensor<f32> {
  // CHECK: logical.cross_entropy: label_smoothing is 1.5; it is 0 to 1
  %0 = logical.cross_entropy %x, %n {axis = 1, label_smoothing = 1.5 : f64} : (tensor<4x6xf32>, tensor<4xi64>) -> tensor<f32>
  func.return %0 : tensor<f32>
}

// -----

func.func @ignored(%x : tensor<4x6xf32>, %n : tensor<4xi32>) -> tensor<f32> {
  // CHECK: logical.cross_entropy: ignore_index is 4294967296, which no label of i32 can be
  %0 = logical.cross_entropy %x, %n {axis = 1, ignore_index = 4294967296} : (tensor<4x6xf32>, tensor<4xi32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}
