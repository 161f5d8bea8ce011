// RUN: aicf-opt %s -p 'aicf-training{target="cpu:x86-64-v3"}' > %t.once
// RUN: filecheck %s < %t.once
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},aicf-training' > %t.apart
// RUN: diff %t.once %t.apart
// RUN: aicf-opt %s -p 'aicf-training{target="reference"}' | filecheck %s --check-prefix=REFERENCE
// RUN: not aicf-opt %s -p 'aicf-training' 2>&1 | filecheck %s --check-prefix=TARGET

// A whole training step: what is saved is kept where it was computed, and one instruction overwrites parameters and
// states. The counter is overwritten too.
// CHECK: emit.decision "eliminate-saves" ["a.save"] choice "keep"
// CHECK: emit.program @step attributes {phase = "final"
// CHECK: %fc2.weight = emit.bind param "fc2.weight" binding(direct) updated
// CHECK: %step = emit.bind {{.*}} "step" binding(direct) updated
// CHECK: %a = emit.slot
// CHECK: emit.resolved "gemm_epilogue" id(17) name("h") src(["h", "a"])
// CHECK: emit.resolved {{.*}} src(["now"
// CHECK: outs(%step
// CHECK: emit.resolved "update" id(37) name("w1.new") src(["w1.new", "b1.new", "w2.new"])
// CHECK-NEXT: outs(%fc1.weight, %fc1.weight.exp_avg, %fc1.weight.exp_avg_sq, %fc1.bias, %fc2.weight :
// CHECK-NOT: emit.resolved
// REFERENCE: kernel("reference.
// TARGET: error: the module has no target; run set-target{target=...} first
func.func @step(
    %x : tensor<8x6xf32> {logical.name = "x", logical.role = "input"},
    %y : tensor<8xi64> {logical.name = "y", logical.role = "input"},
    %w1 : tensor<5x6xf32> {logical.name = "fc1.weight", logical.role = "param"},
    %b1 : tensor<5xf32> {logical.name = "fc1.bias", logical.role = "param"},
    %w2 : tensor<3x5xf32> {logical.name = "fc2.weight", logical.role = "param"},
    %m1 : tensor<5x6xf32> {logical.name = "fc1.weight.exp_avg", logical.role = "state"},
    %v1 : tensor<5x6xf32> {logical.name = "fc1.weight.exp_avg_sq", logical.role = "state"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "meta"},
    %step : tensor<i64> {logical.name = "step", logical.role = "state"})
    -> (tensor<f32> {logical.name = "loss"},
        tensor<5x6xf32> {logical.updates = "fc1.weight"},
        tensor<5x6xf32> {logical.updates = "fc1.weight.exp_avg"},
        tensor<5x6xf32> {logical.updates = "fc1.weight.exp_avg_sq"},
        tensor<5xf32> {logical.updates = "fc1.bias"},
        tensor<3x5xf32> {logical.updates = "fc2.weight"},
        tensor<i64> {logical.updates = "step"}) {
  %h = logical.linear %x, %w1, %b1 : (tensor<8x6xf32>, tensor<5x6xf32>, tensor<5xf32>) -> tensor<8x5xf32>
  %a = logical.relu %h : tensor<8x5xf32>
  %logits = logical.linear %a, %w2 : (tensor<8x5xf32>, tensor<3x5xf32>) -> tensor<8x3xf32>
  %loss = logical.cross_entropy %logits, %y {axis = 1 : i64} : (tensor<8x3xf32>, tensor<8xi64>) -> tensor<f32>
  %dw1 = logical.gradient %loss, %w1 : (tensor<f32>, tensor<5x6xf32>) -> tensor<5x6xf32>
  %db1 = logical.gradient %loss, %b1 : (tensor<f32>, tensor<5xf32>) -> tensor<5xf32>
  %dw2 = logical.gradient %loss, %w2 : (tensor<f32>, tensor<3x5xf32>) -> tensor<3x5xf32>
  %now = logical.step_inc %step : tensor<i64>
  %w1.new, %m1.new, %v1.new = logical.adam %w1, %dw1, %lr, %now, %m1, %v1 : (tensor<5x6xf32>, tensor<5x6xf32>, tensor<f32>, tensor<i64>, tensor<5x6xf32>, tensor<5x6xf32>) -> (tensor<5x6xf32>, tensor<5x6xf32>, tensor<5x6xf32>)
  %b1.new = logical.sgd %b1, %db1, %lr, %now : (tensor<5xf32>, tensor<5xf32>, tensor<f32>, tensor<i64>) -> tensor<5xf32>
  %w2.new = logical.sgd %w2, %dw2, %lr, %now : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>, tensor<i64>) -> tensor<3x5xf32>
  func.return %loss, %w1.new, %m1.new, %v1.new, %b1.new, %w2.new, %now : tensor<f32>, tensor<5x6xf32>, tensor<5x6xf32>, tensor<5x6xf32>, tensor<5xf32>, tensor<3x5xf32>, tensor<i64>
}
