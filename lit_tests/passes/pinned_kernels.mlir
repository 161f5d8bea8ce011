// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{kernels: {fc: cpu.gemm_portable}}"}' | filecheck %s --check-prefix=SMALLER
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{kernels: {fc: cpu.gemm_norm_avx2}}"}' | filecheck %s --check-prefix=WHOLE
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{kernels: {fc: cpu.gemm_avx512}}"}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not aicf-opt %s -p 'set-target{target="reference:typed"},apply-policy{policy="{kernels: {fc: reference.body}}"},aicf-inference{target="cpu:x86-64-v3"}' 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{groups: [[fc, act]]}"}' 2>&1 | filecheck %s --check-prefix=GROUP

// A pinned kernel decides which group of that name forms: the largest that it runs, whatever that is predicted to cost.
// SMALLER: emit.decision "fuse-norms" {{.*}} choice "not fused" {{.*}} = "the policy pins kernel cpu.gemm_portable for it, which cannot run it: it does not run instructions of kind gemm_norm"
// SMALLER: emit.decision "select-kernels" ["fc"] choice "cpu.gemm_portable" because "policy pins it for 'fc'"
// SMALLER: graphs = {{\[\[}}"fc", "prob"]]
// WHOLE: emit.decision "fuse-norms" {{.*}} choice "one kernel for 10 ops"
// WHOLE: graphs = {{\[\[}}"fc"]]

// One that runs none of them is an error at the op, and so is a policy that came along from another target.
// NONE: pinned_kernels.mlir:[[# @LINE + 9]]:3: error: no kernel of target cpu runs 'fc.matmul' (logical.matmul): the policy pins kernel cpu.gemm_avx512 for it, which cannot run it: needs cpu level x86-64-v4 (512-bit vectors), the target is x86-64-v3
// TARGET: error: kernels.fc: backend 'cpu' has no kernel 'reference.body'

// A group names lowered ops; the error lists what the program has, and not what passes might copy.
// GROUP: error: groups[0]: no op has the id 'fc'; it has: act, fc.bias, fc.bias.broadcast, fc.matmul, prob.div, prob.exp, prob.max, prob.max.broadcast, prob.sub, prob.sum, prob.sum.broadcast{{$}}
func.func @classify(
    %x : tensor<16x64xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<32x64xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<32xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<16x32xf32> {logical.name = "y"}) {
  %fc = logical.linear %x, %w, %b : (tensor<16x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<16x32xf32>
  %act = logical.relu %fc : tensor<16x32xf32>
  %prob = logical.softmax %act {axis = 1} : tensor<16x32xf32>
  func.return %prob : tensor<16x32xf32>
}
