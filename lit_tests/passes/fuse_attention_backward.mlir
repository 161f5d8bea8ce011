// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,differentiate,lower-optimizers,lower-logical,logical-cse,eliminate-saves,logical-dce,fuse-attention,fuse-attention-backward' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"saves\": {\"a.softmax.save\": \"keep\"}}"},assign-ids,differentiate,lower-optimizers,lower-logical,logical-cse,eliminate-saves,logical-dce,fuse-attention-backward' | filecheck %s --check-prefix=KEPT
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"attention\": false}}"},assign-ids,differentiate,lower-optimizers,lower-logical,logical-cse,eliminate-saves,logical-dce,fuse-attention-backward' | filecheck %s --check-prefix=OFF

// The weights are computed again inside the kernel of the backward part, so that neither part writes them.
// CHECK: emit.decision "eliminate-saves" ["a.softmax.save"] choice "recompute" because "the kernel of attention's backward part computes it again from queries and keys, and never writes it" rejected {keep = "16384 bytes until it is read"}
// CHECK: emit.decision "fuse-attention" ["a", "a.scores"{{.*}}
// CHECK: emit.decision "fuse-attention-backward" ["a.output.grad.lhs", {{.*}}"a.scores.again", {{.*}}] choice "one kernel for 26 ops" because "scores, weights and their gradients stay on chip; weights are computed again from queries and keys"
// CHECK-LABEL: func.func @step
// CHECK: %a.output = emit.group "a" from ["a"]
// CHECK: %a.scores.grad.lhs, %a.scores.grad.rhs, %a.output.grad.rhs = emit.group "a.output.grad.lhs" from ["a", "dv", "dq", "dk"]
// CHECK: logical.matmul {{.*}} {transpose_b, aicf.id = "a.output.grad.lhs"
// CHECK: logical.matmul {{.*}} {transpose_b, aicf.id = "a.scores.again"
// CHECK: logical.matmul {{.*}} {transpose_a, aicf.id = "a.output.grad.rhs"
// CHECK: logical.matmul {{.*}} {aicf.id = "a.scores.grad.lhs"
// CHECK: logical.matmul {{.*}} {transpose_a, aicf.id = "a.scores.grad.rhs"
// CHECK: emit.yield %a.scores.grad.lhs_1, %a.scores.grad.rhs_1, %a.output.grad.rhs_1
// CHECK-NOT: logical.
// CHECK: func.return

// KEPT: emit.decision "eliminate-saves" ["a.softmax.save"] choice "keep" because "the policy says so"
// KEPT: emit.decision "fuse-attention-backward" ["a.scores.grad.lhs", "a.scores.grad.rhs", "a.output.grad.rhs", "a.scores"] choice "not fused" because "'a.output' reads what is computed between the products, so it has to be written to memory in any case"

// OFF: emit.decision "eliminate-saves" ["a.softmax.save"] choice "keep" because "computing it again takes time, and memory is not short"
// OFF: emit.decision "fuse-attention-backward" ["a.scores.grad.lhs"{{.*}}] choice "not fused" because "attention fusion is off by policy (fusion.attention)"
func.func @step(
    %q : tensor<2x64x16xf16> {logical.name = "q", logical.role = "param"},
    %k : tensor<2x64x16xf16> {logical.name = "k", logical.role = "param"},
    %v : tensor<2x64x16xf16> {logical.name = "v", logical.role = "param"})
    -> (tensor<f16> {logical.name = "loss"}, tensor<2x64x16xf16> {logical.name = "dq"}, tensor<2x64x16xf16> {logical.name = "dk"}, tensor<2x64x16xf16> {logical.name = "dv"}) {
  %a = logical.attention %q, %k, %v {causal} : (tensor<2x64x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>) -> tensor<2x64x16xf16>
  %s = logical.mul %a, %a : tensor<2x64x16xf16>
  %loss = logical.reduce_mean %s {axes = [0, 1, 2]} : tensor<2x64x16xf16> -> tensor<f16>
  %dq = logical.gradient %loss, %q : (tensor<f16>, tensor<2x64x16xf16>) -> tensor<2x64x16xf16>
  %dk = logical.gradient %loss, %k : (tensor<f16>, tensor<2x64x16xf16>) -> tensor<2x64x16xf16>
  %dv = logical.gradient %loss, %v : (tensor<f16>, tensor<2x64x16xf16>) -> tensor<2x64x16xf16>
  func.return %loss, %dq, %dk, %dv : tensor<f16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>, tensor<2x64x16xf16>
}
