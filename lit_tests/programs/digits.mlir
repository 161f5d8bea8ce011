// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids' > %t.identified
// RUN: filecheck %s --check-prefix=IDENTIFIED < %t.identified
// RUN: aicf-opt %t.identified -p 'verify-logical,logical-canonicalize,logical-cse,logical-dce,fold-constants,specialize-shapes{dims="N=1,4"}' > %t.specialized
// RUN: filecheck %s --check-prefix=SPECIALIZED < %t.specialized
// RUN: aicf-opt %t.specialized -p 'lower-logical,logical-canonicalize,logical-cse,logical-dce,fold-constants,fold-transposes,logical-dce,verify-logical' > %t.lowered
// RUN: filecheck %s --check-prefix=LOWERED < %t.lowered
// RUN: aicf-opt %t.lowered -p 'fuse-attention,materialize-views,fuse-gated,fuse-horizontal,fuse-prologues,fuse-norms,fuse-epilogues,fuse-elementwise,fuse-multi-output' > %t.grouped
// RUN: filecheck %s --check-prefix=GROUPED < %t.grouped
// RUN: aicf-opt %t.grouped -p 'select-kernels,generate-kernels' > %t.selected
// RUN: filecheck %s --check-prefix=SELECTED < %t.selected
// RUN: aicf-opt %t.selected -p 'lower-to-emit,verify-emit' > %t.emitted
// RUN: filecheck %s --check-prefix=EMITTED < %t.emitted
// RUN: aicf-opt %t.emitted -p 'schedule,verify-order' > %t.scheduled
// RUN: filecheck %s --check-prefix=SCHEDULED < %t.scheduled
// RUN: aicf-opt %t.scheduled -p 'decide-inplace' > %t.inplace
// RUN: filecheck %s --check-prefix=INPLACE < %t.inplace
// RUN: aicf-opt %t.inplace -p 'plan-memory' > %t.planned
// RUN: filecheck %s --check-prefix=PLANNED < %t.planned
// RUN: aicf-opt %t.planned -p 'plan-capture,verify-emit,verify-order,verify-capture-safe' > %t.final
// RUN: filecheck %s --check-prefix=FINAL < %t.final
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" dims="N=1,4"}' > %t.whole
// RUN: diff %t.final %t.whole

// The digits classifier, small: symbolic batch in two buckets, bias and activation after the products, a softmax.

// The text of every stage parses back, the later passes go on from there, and the end is byte for byte that of the whole
// pipeline at once.

// IDENTIFIED: logical.linear %x, %w1, %b1 {aicf.id = "fc1", aicf.src = ["fc1"]}
// IDENTIFIED: logical.relu %fc1 {aicf.id = "relu1", aicf.src = ["relu1"]}
// IDENTIFIED: logical.softmax %fc2 {axis = 1, aicf.id = "prob", aicf.src = ["prob"]}

// One function a bucket; ids say the bucket, sources stay.
// SPECIALIZED: logical.dispatch @digits dims ["N"] {{\[\[}}1] = @"digits@N=1", [4] = @"digits@N=4"]
// SPECIALIZED: func.func @"digits@N=1"(%x: tensor<1x8xf32>
// SPECIALIZED: logical.linear %x, %w1, %b1 {aicf.id = "fc1@N=1", aicf.src = ["fc1"]} : (tensor<1x8xf32>,
// SPECIALIZED: func.func @"digits@N=4"(%x: tensor<4x8xf32>

// Primitive ops only; the expansion of an op keeps its source.
// LOWERED-LABEL: func.func @"digits@N=4"
// LOWERED-NEXT: logical.matmul %x, %w1 {transpose_b, aicf.id = "fc1.matmul@N=4", aicf.src = ["fc1"]}
// LOWERED-NEXT: logical.broadcast %b1
// LOWERED-NEXT: logical.add {{.*}} {aicf.id = "fc1.bias@N=4", aicf.src = ["fc1"]}
// LOWERED-NEXT: logical.relu
// LOWERED-NEXT: logical.matmul
// LOWERED: logical.reduce_max {{.*}} {axes = [1], keepdims, aicf.id = "prob.max@N=4", aicf.src = ["prob"]}
// LOWERED-NOT: logical.softmax
// LOWERED: func.return

// Three groups a bucket.
// GROUPED-LABEL: func.func @"digits@N=4"
// GROUPED-NEXT: emit.group "fc1@N=4" from ["fc1", "relu1"] ins(%{{.*}} = %x : tensor<4x8xf32>, %{{.*}} = %w1 : tensor<16x8xf32>, %{{.*}} = %b1 : tensor<16xf32>)
// GROUPED: emit.group "fc2@N=4" from ["fc2"]
// GROUPED: %[[PROB:.*]] = emit.group "prob@N=4" from ["prob"] ins(%{{.*}} = %fc2.bias : tensor<4x10xf32>)
// GROUPED: logical.reduce_max
// GROUPED: logical.reduce_sum
// GROUPED: }
// GROUPED: func.return %[[PROB]]

// SELECTED: emit.decision "select-kernels" ["fc1@N=1"] choice "cpu.gemm_avx2" because
// SELECTED: emit.kernel @"prob@N=4.code" parallel [4] reduce [10]
// SELECTED-LABEL: func.func @"digits@N=4"
// SELECTED-NEXT: emit.group "fc1@N=4" {{.*}} kernel("cpu.gemm_avx2", {{.*}}) code(@"fc1@N=4.code")
// SELECTED: emit.group "prob@N=4" {{.*}} kernel("cpu.generated", {{.*}}) code(@"prob@N=4.code")

// Both buckets read the same prepared weights.
// EMITTED-LABEL: emit.program @prepare attributes {phase = "bufferized"} {
// EMITTED: emit.resolved "pack" id(26) name("fc1.weight:packed_b") src(["fc1", "relu1"])
// EMITTED: emit.resolved "pack" id(26) name("fc2.weight:packed_b") src(["fc2"])
// EMITTED-NOT: "pack"
// EMITTED-LABEL: emit.program @"digits@N=4" attributes {phase = "bufferized"} {
// EMITTED-NOT: emit.bind param "fc1.weight"
// EMITTED: emit.bind output "probabilities" binding(direct) : !emit.buffer<4x10xf32, bound>
// EMITTED-NEXT: %[[W1:.*]] = emit.bind derived "fc1.weight:packed_b"
// EMITTED: %relu1 = emit.slot : !emit.buffer<4x16xf32, arena>
// EMITTED-NEXT: emit.resolved "gemm_epilogue" id(17) name("fc1@N=4") src(["fc1", "relu1"])
// EMITTED-NEXT: ins(%x, %[[W1]], %fc1.bias : {{.*}}) outs(%relu1 :
// EMITTED-NEXT: attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "relu"} schema("gemm_epilogue.v1") blob("0x0001010001")
// EMITTED-NEXT: body(@"fc1@N=4.body") code(@"fc1@N=4.code")
// EMITTED: emit.resolved "softmax" id(18) name("prob@N=4") src(["prob"])
// EMITTED-NEXT: ins(%{{.*}} : {{.*}}) outs(%probabilities :
// EMITTED-NEXT: attrs {axis = 1 : i64} schema("softmax.v1")

// SCHEDULED-LABEL: emit.program @"digits@N=4" attributes {phase = "scheduled"} {
// SCHEDULED: stream(0) after([])
// SCHEDULED: stream(0) after(["fc1@N=4" full])
// SCHEDULED: stream(0) after(["fc2@N=4" full])

// Nothing to share: each value is read by an op that may not overwrite it, or is in the caller's memory.
// INPLACE-NOT: emit.decision "decide-inplace"
// INPLACE: emit.program @"digits@N=4" attributes {phase = "inplace"} {

// PLANNED: emit.decision "plan-memory" ["digits@N=4"] choice "arena of 448 bytes for 2 slots" because "equals the lower bound"
// PLANNED-LABEL: emit.program @"digits@N=4" attributes {phase = "planned", arena_bytes = 448 : i64} {
// PLANNED: %relu1 = emit.slot offset(0) size(256) align(64) : !emit.buffer<4x16xf32, arena>
// PLANNED: %{{.*}} = emit.slot offset(256) size(192) align(64) : !emit.buffer<4x10xf32, arena>

// FINAL: logical.dispatch @digits
// FINAL: emit.program @prepare attributes {phase = "final", arena_bytes = 0 : i64, graphs = {{\[\[}}"fc1.weight:packed_b", "fc2.weight:packed_b"]]} {
// FINAL: emit.program @"digits@N=1" attributes {phase = "final", arena_bytes = 128 : i64, graphs = {{\[\[}}"fc1@N=1", "fc2@N=1", "prob@N=1"]]} {
// FINAL: emit.program @"digits@N=4" attributes {phase = "final", arena_bytes = 448 : i64, graphs = {{\[\[}}"fc1@N=4", "fc2@N=4", "prob@N=4"]]} {
func.func @digits(
    %x : tensor<?x8xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"},
    %w1 : tensor<16x8xf32> {logical.name = "fc1.weight", logical.role = "param"},
    %b1 : tensor<16xf32> {logical.name = "fc1.bias", logical.role = "param"},
    %w2 : tensor<10x16xf32> {logical.name = "fc2.weight", logical.role = "param"},
    %b2 : tensor<10xf32> {logical.name = "fc2.bias", logical.role = "param"})
    -> (tensor<?x10xf32, #logical.dims<["N", ""]>> {logical.name = "probabilities"}) {
  %fc1 = logical.linear %x, %w1, %b1 : (tensor<?x8xf32, #logical.dims<["N", ""]>>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<?x16xf32, #logical.dims<["N", ""]>>
  %relu1 = logical.relu %fc1 : tensor<?x16xf32, #logical.dims<["N", ""]>>
  %fc2 = logical.linear %relu1, %w2, %b2 : (tensor<?x16xf32, #logical.dims<["N", ""]>>, tensor<10x16xf32>, tensor<10xf32>) -> tensor<?x10xf32, #logical.dims<["N", ""]>>
  %prob = logical.softmax %fc2 {axis = 1} : tensor<?x10xf32, #logical.dims<["N", ""]>>
  func.return %prob : tensor<?x10xf32, #logical.dims<["N", ""]>>
}
