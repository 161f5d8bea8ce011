// RUN: aicf-opt %s -p 'apply-policy{policy="{streams: 2, groups: [[a, b]], kernels: {softmax: reference.body}}"}' | filecheck %s
// RUN: aicf-opt %s -p apply-policy | filecheck %s --check-prefix=AUTO
// RUN: not aicf-opt %s -p 'apply-policy{policy="{kernels: {fc1: reference.bodi}}"}' 2>&1 | filecheck %s --check-prefix=KERNEL
// RUN: not aicf-opt %s -p 'apply-policy{policy="{determinism: never}"}' 2>&1 | filecheck %s --check-prefix=VALUE
// RUN: not aicf-opt %s -p 'apply-policy{policy="{matmul: bodi}"}' 2>&1 | filecheck %s --check-prefix=LIBRARY
// RUN: not aicf-opt %s -p 'apply-policy{policy="fastest"}' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not aicf-opt %s -p 'apply-policy{policy="{max_programs: 2}"}' 2>&1 | filecheck %s --check-prefix=SESSION

// Every field that passes follow is written down, so that the module says all of its policy.
// CHECK:      aicf.policy = {version = 1 : i64, determinism = "bitwise", rounding = "fused", tf32 = false,
// CHECK-SAME:   fusion = {attention = true, gated = true, horizontal = true, prologue = true, norm = true, epilogue = true, elementwise = true, multi_output = true, concat = true}, kernels = {softmax = "reference.body"},
// CHECK-SAME:   records = {}, matmul = "auto", attention = "auto", conv = "auto", forbid = [], groups = [["a", "b"]], layouts = {}, measurements = "cold"},
// CHECK-SAME:   aicf.execution = {version = 1 : i64, streams = 2 : i64, streams_of = {}, bindings = {}, inplace = true, memory = "shared", order = "reuse", prepared_weights = true, saves = {}}}
// CHECK:      emit.decision "apply-policy" ["module"] choice "policy: given" because "option policy: kernels, groups, streams"

// AUTO:       aicf.policy = {version = 1 : i64, determinism = "bitwise", rounding = "fused", tf32 = false,
// AUTO-SAME:    kernels = {}, records = {}, matmul = "auto", attention = "auto", conv = "auto", forbid = [], groups = [], layouts = {}, measurements = "cold"}, aicf.execution = {version = 1 : i64, streams = 0 : i64,
// AUTO:       emit.decision "apply-policy" ["module"] choice "policy: the default"

// KERNEL: error: kernels.fc1: backend 'reference' has no kernel 'reference.bodi'; did you mean 'reference.body'?
// LIBRARY: error: matmul: backend 'reference' has no library 'bodi'; did you mean 'body'? legal: auto, body
// VALUE: error: determinism: 'never' is not legal; {{.*}}legal: any, batch_invariant, bitwise
// NAME: error: policy 'fastest': give 'auto', inline JSON, or a .json, .yaml or .yml file
// SESSION: error: max_programs: a compile makes what it is asked for; give this to an InferenceSession
builtin.module attributes {aicf.target = #emit.target<"reference", "typed", {threads = 1 : i64}>} {
  func.func @f(%x: tensor<2xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2xf32> {logical.name = "y"}) {
    %y = logical.relu %x : tensor<2xf32>
    func.return %y : tensor<2xf32>
  }
}
