// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids' > %t.identified
// RUN: filecheck %s --check-prefix=IDENTIFIED < %t.identified
// RUN: aicf-opt %t.identified -p 'verify-logical,logical-canonicalize,logical-cse,logical-dce,fold-constants,specialize-shapes' > %t.specialized
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
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' > %t.whole
// RUN: diff %t.final %t.whole

// One step of gradient descent: both updates end up in place, with no copy left.

// The text of every stage parses back, the later passes go on from there, and the end is byte for byte that of the whole
// pipeline at once.

// IDENTIFIED: logical.linear %x, %w, %b {aicf.id = "prediction", aicf.src = ["prediction"]}
// SPECIALIZED: -> (tensor<f32> {logical.name = "loss"}, tensor<4x8xf32> {logical.updates = "w"}, tensor<4xf32> {logical.updates = "b"})

// LOWERED-LABEL: func.func @step
// LOWERED-NOT: logical.linear
// LOWERED: logical.reduce_sum {{.*}} {axes = [0, 1], aicf.id = "loss.sum", aicf.src = ["loss"]}
// LOWERED: logical.div {{.*}} {aicf.id = "loss{{.*}}", aicf.src = ["loss"]}
// LOWERED: func.return

// The steps are epilogues: of the product that gives the gradient, and of the reduction. The loss and the gradient of the
// prediction come from one reading of the error.
// GROUPED-LABEL: func.func @step
// GROUPED: emit.group "prediction" from ["prediction", "error"]
// GROUPED: %grad, %loss = emit.group "grad" from ["grad", "squared", "loss"]
// GROUPED: emit.group "grad_w" from ["grad_w", "step_w", "new_w"]
// GROUPED: emit.group "grad_b" from ["grad_b", "step_b", "new_b"]
// GROUPED-NOT: emit.group

// A parameter that the program updates is never packed ahead.
// SELECTED: emit.group "prediction" {{.*}} b_source = "{{workspace|direct}}"

// Each update goes to a slot and is copied at the end.
// EMITTED-NOT: @prepare
// EMITTED-LABEL: emit.program @step attributes {phase = "bufferized"} {
// EMITTED: %w = emit.bind param "w" binding(direct) updated : !emit.buffer<4x8xf32, bound>
// EMITTED: emit.bind meta "lr"
// EMITTED: %new_w = emit.slot
// EMITTED: outs(%new_w :
// EMITTED: %new_b = emit.slot
// EMITTED: emit.resolved "copy" id(8) name("w.update") src(["grad_w", "step_w", "new_w"])
// EMITTED-NEXT: ins(%new_w : {{.*}}) outs(%w :
// EMITTED: emit.resolved "copy" id(8) name("b.update")

// SCHEDULED: name("w.update")
// SCHEDULED: stream(0) after(["grad_b" full])

// No copy is left, nor its body or slot; the gradient of the prediction takes the slot of the error.
// INPLACE: emit.decision "decide-inplace" ["grad_w", "w"] choice "write 'w' in place"
// INPLACE: emit.decision "decide-inplace" ["grad_b", "b"] choice "write 'b' in place"
// INPLACE: emit.decision "decide-inplace" ["grad"] choice "result 0 overwrites operand 0"
// INPLACE-NOT: .update.body
// INPLACE-NOT: "copy"
// INPLACE: name("grad")
// INPLACE-NEXT: ins(%error : {{.*}}) outs(%error, %loss :
// INPLACE: name("grad_w")
// INPLACE-NEXT: ins(%error, %x, %lr, %w : {{.*}}) outs(%w :
// INPLACE: name("grad_b")
// INPLACE-NEXT: ins(%error, %lr, %b : {{.*}}) outs(%b :
// INPLACE-NOT: "copy"

// PLANNED: emit.program @step attributes {phase = "planned", arena_bytes = 1152 : i64} {

// FINAL: emit.program @step attributes {phase = "final", arena_bytes = 1152 : i64, graphs = {{\[\[}}"prediction", "grad", "grad_w", "grad_b"]]} {
func.func @step(
    %x : tensor<64x8xf32> {logical.name = "x", logical.role = "input"},
    %y : tensor<64x4xf32> {logical.name = "y", logical.role = "input"},
    %w : tensor<4x8xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "param"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "meta"})
    -> (tensor<f32> {logical.name = "loss"},
        tensor<4x8xf32> {logical.updates = "w"},
        tensor<4xf32> {logical.updates = "b"}) {
  %prediction = logical.linear %x, %w, %b : (tensor<64x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<64x4xf32>
  %error = logical.sub %prediction, %y : tensor<64x4xf32>
  %squared = logical.mul %error, %error : tensor<64x4xf32>
  %loss = logical.reduce_mean %squared {axes = [0, 1]} : tensor<64x4xf32> -> tensor<f32>

  // d loss / d prediction = 2 error / 256
  %share = logical.constant dense<0.0078125> : tensor<64x4xf32>
  %grad = logical.mul %error, %share : tensor<64x4xf32>
  %grad_w = logical.matmul %grad, %x {transpose_a} : (tensor<64x4xf32>, tensor<64x8xf32>) -> tensor<4x8xf32>
  %grad_b = logical.reduce_sum %grad {axes = [0]} : tensor<64x4xf32> -> tensor<4xf32>

  %lr_w = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4x8xf32>
  %step_w = logical.mul %lr_w, %grad_w : tensor<4x8xf32>
  %new_w = logical.sub %w, %step_w : tensor<4x8xf32>
  %lr_b = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
  %step_b = logical.mul %lr_b, %grad_b : tensor<4xf32>
  %new_b = logical.sub %b, %step_b : tensor<4xf32>
  func.return %loss, %new_w, %new_b : tensor<f32>, tensor<4x8xf32>, tensor<4xf32>
}
