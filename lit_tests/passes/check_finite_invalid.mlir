// RUN: aicf-opt %s -p 'assign-ids,check-finite' --split-input-file --verify-diagnostics | filecheck %s

// Nothing is held back.
// CHECK: error: check-finite holds updates back, and no function of the module updates anything; leave it out
func.func @forward(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %y = logical.exp %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

// No counter says which step it is.
// CHECK: check_finite_invalid.mlir:[[# @LINE + 1]]:1: error: @uncounted: check-finite names a bad step by its number; let an i64 result update 'step'
func.func @uncounted(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4xf32> {logical.updates = "w"}) {
  %new = logical.sub %w, %x : tensor<4xf32>
  func.return %new : tensor<4xf32>
}

// -----

// The flag is there already.
// CHECK: error: @twice: has 'aicf.bad_step' already; run check-finite once
func.func @twice(
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"},
    %bad : tensor<i64> {logical.name = "aicf.bad_step", logical.role = "meta"}) -> (tensor<i64> {logical.updates = "step"}) {
  %now = logical.step_inc %step : tensor<i64>
  func.return %now : tensor<i64>
}
