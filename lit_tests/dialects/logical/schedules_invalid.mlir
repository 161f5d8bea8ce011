// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// One of period and milestones says when the rate falls.
// CHECK: period is 0 and milestones are []; give one of them: 1 or more, or a list
func.func @neither(%s : tensor<i64>) {
  %0 = logical.step_rate %s {base = 0.1, factor = 0.5} : tensor<i64> -> tensor<f32>
  func.return
}

// -----

// The peak lies inside the cycle.
// CHECK: rise is 8.5 of 9 steps; it is more than 0, and less than total - 1: make total larger
func.func @late(%s : tensor<i64>) {
  %0 = logical.one_cycle_rate %s {anneal = "linear", base = 0.1, peak = 1.0, final = 0.0, rise = 8.5, total = 9} : tensor<i64> -> tensor<f32>
  func.return
}
