// RUN: aicf-opt %S/../../examples/digits/mlp.mlir -p 'aicf-inference{target="cpu:x86-64-v3" dims="N=1,540"}' > %t.digits
// RUN: filecheck %s --check-prefix=DIGITS < %t.digits
// RUN: aicf-opt %t.digits > %t.digits.again
// RUN: diff %t.digits %t.digits.again
// RUN: aicf-opt %S/../../examples/block/block.mlir -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=BLOCK
// RUN: aicf-opt %S/../../examples/sgd/step.mlir -p 'aicf-inference{target="cpu:x86-64-v2"}' | filecheck %s --check-prefix=SGD

// The examples as they are, down to final programs.

// DIGITS: logical.dispatch @digits dims ["N"] {{\[\[}}1] = @"digits@N=1", [540] = @"digits@N=540"]
// DIGITS: emit.program @prepare
// DIGITS: emit.program @"digits@N=540" attributes {phase = "final", {{.*}}graphs = {{\[\[}}"fc1@N=540", "fc2@N=540", "fc3@N=540", "prob@N=540"]]}

// BLOCK: emit.program @block attributes {phase = "final", arena_bytes = 1310720 : i64, graphs = {{\[\[}}"up", "down"]]} {
// BLOCK: kernel("cpu.gemm_avx512",

// SGD: emit.program @step attributes {phase = "final",
// SGD-NOT: "copy"
// SGD: kernel("cpu.gemm_portable",
