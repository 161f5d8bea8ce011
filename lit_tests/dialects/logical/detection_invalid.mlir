// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @element(%b : tensor<1x9x4xi32>, %s : tensor<1x3x9xi32>, %o : tensor<i32>) {
  // CHECK: error: logical.non_max_suppression: not defined for i32; cast to a float type first
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x9x4xi32>, tensor<1x3x9xi32>, tensor<i32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @narrow(%b : tensor<1x9x4xf16>, %s : tensor<1x3x9xf16>, %o : tensor<f16>) {
  // CHECK: error: logical.non_max_suppression: not defined for f16; cast to f32 first
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x9x4xf16>, tensor<1x3x9xf16>, tensor<f16>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @numbers(%b : tensor<1x9x5xf32>, %s : tensor<1x3x9xf32>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: boxes are 1x9x5xf32; they are [B, N, 4]: samples, boxes, and four numbers each
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x9x5xf32>, tensor<1x3x9xf32>, tensor<f32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @scores(%b : tensor<1x9x4xf32>, %s : tensor<1x3x8xf32>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: scores are 1x3x8xf32; for boxes 1x9x4xf32 they are [1, C, 9] of the same type
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x9x4xf32>, tensor<1x3x8xf32>, tensor<f32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @score_type(%b : tensor<1x9x4xf32>, %s : tensor<1x3x9xf64>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: scores are 1x3x9xf64; for boxes 1x9x4xf32 they are [1, C, 9] of the same type
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x9x4xf32>, tensor<1x3x9xf64>, tensor<f32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @overlap(%b : tensor<1x9x4xf32>, %s : tensor<1x3x9xf32>, %o : tensor<1xf32>) {
  // CHECK: error: logical.non_max_suppression: overlap is 1xf32; it is one f32 of rank 0
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x9x4xf32>, tensor<1x3x9xf32>, tensor<1xf32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @floor(%b : tensor<1x9x4xf32>, %s : tensor<1x3x9xf32>, %o : tensor<f32>, %f : tensor<f64>) {
  // CHECK: error: logical.non_max_suppression: floor is f64; it is one f32 of rank 0
  %0 = logical.non_max_suppression %b, %s, %o, %f {limit = 5} : (tensor<1x9x4xf32>, tensor<1x3x9xf32>, tensor<f32>, tensor<f64>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @limit(%b : tensor<1x9x4xf32>, %s : tensor<1x3x9xf32>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: limit is 0; it is at least 1
  %0 = logical.non_max_suppression %b, %s, %o {limit = 0} : (tensor<1x9x4xf32>, tensor<1x3x9xf32>, tensor<f32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @no_limit(%b : tensor<1x9x4xf32>, %s : tensor<1x3x9xf32>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: limit is missing; it is an integer
  %0 = logical.non_max_suppression %b, %s, %o : (tensor<1x9x4xf32>, tensor<1x3x9xf32>, tensor<f32>) -> tensor<1x3x5xi64>
  func.return
}

// -----

func.func @result(%b : tensor<1x9x4xf32>, %s : tensor<1x3x9xf32>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: result type is 1x3x99xi64, but the operands give 1x3x9xi64
  %0 = logical.non_max_suppression %b, %s, %o {limit = 99} : (tensor<1x9x4xf32>, tensor<1x3x9xf32>, tensor<f32>) -> tensor<1x3x99xi64>
  func.return
}

// -----

func.func @symbolic(%b : tensor<1x?x4xf32, #logical.dims<["", "N", ""]>>, %s : tensor<1x3x?xf32, #logical.dims<["", "", "N"]>>, %o : tensor<f32>) {
  // CHECK: error: logical.non_max_suppression: the number of boxes is symbolic in 1xNx4; its size must be known
  %0 = logical.non_max_suppression %b, %s, %o {limit = 5} : (tensor<1x?x4xf32, #logical.dims<["", "N", ""]>>, tensor<1x3x?xf32, #logical.dims<["", "", "N"]>>, tensor<f32>) -> tensor<1x3x5xi64>
  func.return
}
