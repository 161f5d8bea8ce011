// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' > %t.once
// RUN: filecheck %s < %t.once
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},aicf-inference' > %t.apart
// RUN: diff %t.once %t.apart
// RUN: aicf-opt %t.once -p 'verify-emit,schedule,verify-order,decide-inplace,plan-memory,plan-capture,verify-emit,verify-order,verify-capture-safe' > %t.twice
// RUN: diff %t.once %t.twice
// RUN: aicf-opt %s -p 'aicf-inference{target="reference"}' | filecheck %s --check-prefix=REFERENCE
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" threads=2 policy="{\"fusion\": {\"elementwise\": false}}"}' | filecheck %s --check-prefix=OPTIONS
// RUN: not aicf-opt %s -p 'aicf-inference' 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" dim="N=1"}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" dims="N=1"}' 2>&1 | filecheck %s --check-prefix=DIMS
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{\"stream\": 2}"}' 2>&1 | filecheck %s --check-prefix=POLICY

// From logical IR to a final program; with the target set before, the same. A final program is only checked again.
// CHECK: builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
// CHECK: emit.kernel @e.code
// CHECK: emit.body @e.body
// CHECK: emit.program @f attributes {phase = "final", arena_bytes = 0 : i64, graphs = {{\[\[}}"e"]]} {
// CHECK-NOT: func.func
// REFERENCE: kernel("reference.
// What the policy wanted is spent when all is decided.
// OPTIONS: builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 2 : i64}>} {
// OPTIONS: emit.decision "apply-policy" ["module"] choice "policy: given" because "option policy: fusion"
// OPTIONS: graphs = {{\[\[}}"e", "y"]]
// TARGET: error: the module has no target; run set-target{target=...} first
// OPTION: error: pass 'aicf-inference' has no option 'dim'; did you mean 'dims'?
// DIMS: error: {{.*}}N
// POLICY: error: stream: unknown field; did you mean 'streams' or 'streams_of'?
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %e = logical.exp %x : tensor<4xf32>
  %y = logical.neg %e : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
