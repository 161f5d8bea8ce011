// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' --split-input-file --verify-diagnostics | filecheck %s

// What only the pipeline of training replaces has no kernel, and the error says who would have replaced it.
// CHECK: no kernel of target cpu runs 'dx' (logical.gradient): differentiate replaces it; run the pipeline aicf-training
func.func @gradient(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %loss = logical.reduce_sum %x {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dx : tensor<4xf32>
}

// -----

// CHECK: no kernel of target cpu runs 'new' (logical.sgd): lower-optimizers replaces it; run the pipeline aicf-training
func.func @optimizer(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "param"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "input"},
    %n : tensor<i64> {logical.name = "n", logical.role = "meta"}) -> (tensor<4xf32> {logical.updates = "x"}) {
  %new = logical.sgd %x, %x, %lr, %n : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  func.return %new : tensor<4xf32>
}

// -----

// CHECK: no kernel of target cpu runs 's' (logical.save): eliminate-saves replaces it; run the pipeline aicf-training
func.func @save(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %s = logical.save %x : tensor<4xf32>
  func.return %s : tensor<4xf32>
}
