// RUN: not aicf-opt %s -p 'assign-ids,differentiate' 2>&1 | filecheck %s

// CHECK: differentiate_invalid.mlir:[[# @LINE + 5]]:3: error: logical.gradient "db": the loss does not depend on 'b'; leave it out, or declare it frozen
func.func @unused(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "param"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "param"}) -> tensor<4xf32> {
  %loss = logical.reduce_sum %x {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %db = logical.gradient %loss, %b : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %db : tensor<4xf32>
}
