// RUN: aicf-opt %s -p 'aicf-training{target="cpu:x86-64-v3" meta=host check-finite=true}' > %t.final
// RUN: filecheck %s < %t.final
// RUN: aicf-opt %t.final -p 'raise-emit' > %t.raised
// RUN: filecheck %s --check-prefix=RAISED < %t.raised
// RUN: aicf-opt %t.raised -p 'aicf-inference{start=lowered}' | filecheck %s --check-prefix=AGAIN

// A step whose counter, rate and correction are metas of the executable, and that changes nothing if it is not finite: on
// the way down, and back up again.

// CHECK: emit.program @step attributes {phase = "final"
// CHECK: %step = emit.bind meta "step" binding(direct) updated host({next = "now"}) : !emit.buffer<i64, bound>
// CHECK: %aicf.bad_step = emit.bind meta "aicf.bad_step" binding(direct) updated value(dense<0>) : !emit.buffer<i64, bound>
// CHECK: %now = emit.bind meta "now" binding(direct) host({formula = "step_inc", of = ["step"]}) : !emit.buffer<i64, bound>
// CHECK: emit.bind meta "rate" binding(direct) host({formula = "learning_rate", of = ["now"], schedule = "linear", base = 1.000000e-01 : f64, warmup = 0 : i64, total = 9 : i64, final = 0.000000e+00 : f64}) : !emit.buffer<f32, bound>
// CHECK-NOT: emit.resolved {{.*}} src(["rate"
// CHECK: outs({{.*}}%w

// RAISED: logical.role = "meta", aicf.host = {next = "now"}}
// RAISED-SAME: {logical.name = "aicf.bad_step", logical.role = "meta", aicf.start = dense<0> : tensor<i64>}
// RAISED-SAME: {logical.name = "now", logical.role = "meta", aicf.host = {formula = "step_inc", of = ["step"]}}
// RAISED-SAME: (tensor<i64> {logical.updates = "aicf.bad_step"}, tensor<i64> {logical.updates = "step"}, tensor<4xf32> {logical.updates = "w"}

// AGAIN: %step = emit.bind meta "step" binding(direct) updated host({next = "now"})
// AGAIN: %aicf.bad_step = emit.bind meta "aicf.bad_step" binding(direct) updated value(dense<0>)
// AGAIN: emit.bind meta "rate" binding(direct) host({formula = "learning_rate"
func.func @step(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<f32> {logical.name = "loss"},
        tensor<4xf32> {logical.updates = "w"},
        tensor<i64> {logical.updates = "step"}) {
  %loss = logical.mse_loss %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  %g = logical.gradient %loss, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %now = logical.step_inc %step : tensor<i64>
  %rate = logical.learning_rate %now {schedule = "linear", base = 0.1, total = 9} : tensor<i64> -> tensor<f32>
  %w.new = logical.sgd %w, %g, %rate, %now : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  func.return %loss, %w.new, %now : tensor<f32>, tensor<4xf32>, tensor<i64>
}
