// RUN: not aicf-opt %s -p 'assign-ids,separate-meta{meta=gpu}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not aicf-opt %s -p 'separate-meta{meta=host}' 2>&1 | filecheck %s --check-prefix=IDS

// OPTION: error: meta: 'gpu' is not known; legal: device, host
// A meta is called after its op.
// IDS: separate_meta_invalid.mlir:[[# @LINE + 4]]:3: error: logical.step_inc: has no id to call a meta by; run assign-ids first
func.func @step(
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<i64> {logical.updates = "step"}) {
  %now = logical.step_inc %step : tensor<i64>
  func.return %now : tensor<i64>
}
