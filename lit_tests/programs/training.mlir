// RUN: aicf-opt %s -p 'aicf-training{target="cuda:sm_90a"}' > %t.final
// RUN: filecheck %s < %t.final
// RUN: aicf-opt %t.final -p 'raise-emit,aicf-inference{start=lowered}' | filecheck %s --check-prefix=AGAIN
// RUN: aicf-opt %s -p 'aicf-training{target="cpu:x86-64-v3" meta=host}' | filecheck %s --check-prefix=HOST

// The digits classifier's training step, as `aicf.train_step` writes it: forward, loss, backward, Adam, the counter and the
// history of losses as one program of eleven instructions.

// What the backward pass needs is kept where it lies; parameters, states and the counter are written in place.
// CHECK: emit.decision "eliminate-saves" ["relu.save"] choice "keep"
// CHECK: emit.decision "decide-inplace" ["fc1.weight.adam", "fc1.weight"] choice "write 'fc1.weight' in place"
// CHECK: emit.decision "decide-inplace" ["fc1.weight.adam", "fc2.bias.exp_avg_sq"] choice "write 'fc2.bias.exp_avg_sq' in place"
// CHECK: emit.decision "decide-inplace" ["fc1.weight.adam", "step"] choice "write 'step' in place"
// CHECK: emit.program @digits_step attributes {phase = "final"
// CHECK-NOT: logical.save
// CHECK: %fc1.weight = emit.bind param "fc1.weight" binding(direct) updated
// CHECK: %step = emit.bind meta "step" binding(direct) updated
// CHECK: %fc1.weight.exp_avg = emit.bind state "fc1.weight.exp_avg" binding(direct) updated
// CHECK: emit.resolved "gemm_epilogue" {{.*}} name("fc1") src(["fc1", "relu"])
// CHECK-NEXT: ins({{.*}} outs(%relu : !emit.buffer<64x128xf32, arena>)
// CHECK: emit.resolved "gemm_epilogue" {{.*}} name("fc2")
// CHECK: emit.resolved {{.*}} name("loss.counted")
// CHECK: emit.resolved {{.*}} name("loss")
// CHECK: emit.resolved {{.*}} name("loss.sum")
// CHECK: emit.resolved "gemm" {{.*}} name("fc2.grad.weight")
// CHECK: emit.resolved "reduce_sum" {{.*}} name("fc2.grad.sum")
// CHECK: emit.resolved "gemm_epilogue_bwd" {{.*}} name("fc2.grad.operand") src(["fc2", "relu"])
// CHECK: emit.resolved "gemm" {{.*}} name("fc1.grad.weight")
// CHECK: emit.resolved "reduce_sum" {{.*}} name("fc1.grad.sum")
// One instruction for all parameters; the counter, the rate, the corrections and the slot in the history are in it.
// CHECK: emit.resolved "adam_step" {{.*}} src(["step.now", "lr", "fc1.weight.adam", "fc1.bias.adam", "fc2.weight.adam", "fc2.bias.adam", "losses.slot"
// CHECK-NEXT: ins({{.*}} outs(%fc1.weight, %fc1.weight.exp_avg, %fc1.weight.exp_avg_sq, %fc1.bias, %fc1.bias.exp_avg, {{.*}} %aicf.losses, %step :
// CHECK: kernel("cuda.multi_tensor"
// CHECK-NOT: emit.resolved

// AGAIN: emit.resolved "adam_step" {{.*}} src(["step.now", "lr", "fc1.weight.adam", "fc1.bias.adam", "fc2.weight.adam", "fc2.bias.adam", "losses.slot"
// AGAIN-NOT: emit.resolved

// Where the executable keeps them, what follows from the counter are metas that it sets before each run.
// HOST: %step = emit.bind meta "step" binding(direct) host({next = "step.now"})
// HOST: %step.now = emit.bind meta "step.now" binding(direct) host({formula = "step_inc", of = ["step"]})
// HOST: %lr = emit.bind meta "lr" binding(direct) host({formula = "learning_rate"
// HOST: emit.bind meta "fc1.weight.adam.variance.correction" binding(direct) host({formula = "bias_corr", of = ["step.now"], beta = 9.990000e-01 : f64})
// HOST: emit.bind meta "losses.slot" binding(direct) host(
// HOST: emit.resolved "adam_step" {{.*}} name("fc1.weight.adam")
// HOST-NOT: emit.resolved
func.func @digits_step(
    %x: tensor<64x64xf32> {logical.name = "x", logical.role = "input"},
    %fc1.weight: tensor<128x64xf32> {logical.name = "fc1.weight", logical.role = "param"},
    %fc1.bias: tensor<128xf32> {logical.name = "fc1.bias", logical.role = "param"},
    %fc2.weight: tensor<10x128xf32> {logical.name = "fc2.weight", logical.role = "param"},
    %fc2.bias: tensor<10xf32> {logical.name = "fc2.bias", logical.role = "param"},
    %y: tensor<64xi64> {logical.name = "y", logical.role = "input"},
    %step: tensor<i64> {logical.name = "step", logical.role = "meta"},
    %fc1.weight.exp_avg: tensor<128x64xf32> {logical.name = "fc1.weight.exp_avg", logical.role = "state"},
    %fc1.weight.exp_avg_sq: tensor<128x64xf32> {logical.name = "fc1.weight.exp_avg_sq", logical.role = "state"},
    %fc1.bias.exp_avg: tensor<128xf32> {logical.name = "fc1.bias.exp_avg", logical.role = "state"},
    %fc1.bias.exp_avg_sq: tensor<128xf32> {logical.name = "fc1.bias.exp_avg_sq", logical.role = "state"},
    %fc2.weight.exp_avg: tensor<10x128xf32> {logical.name = "fc2.weight.exp_avg", logical.role = "state"},
    %fc2.weight.exp_avg_sq: tensor<10x128xf32> {logical.name = "fc2.weight.exp_avg_sq", logical.role = "state"},
    %fc2.bias.exp_avg: tensor<10xf32> {logical.name = "fc2.bias.exp_avg", logical.role = "state"},
    %fc2.bias.exp_avg_sq: tensor<10xf32> {logical.name = "fc2.bias.exp_avg_sq", logical.role = "state"},
    %aicf.losses: tensor<1024xf32> {logical.name = "aicf.losses", logical.role = "state"},
    %aicf.slots: tensor<1024xi64> {logical.name = "aicf.slots", logical.role = "param"})
    -> (tensor<f32> {logical.name = "loss"},
        tensor<128x64xf32> {logical.updates = "fc1.weight"},
        tensor<128x64xf32> {logical.updates = "fc1.weight.exp_avg"},
        tensor<128x64xf32> {logical.updates = "fc1.weight.exp_avg_sq"},
        tensor<128xf32> {logical.updates = "fc1.bias"},
        tensor<128xf32> {logical.updates = "fc1.bias.exp_avg"},
        tensor<128xf32> {logical.updates = "fc1.bias.exp_avg_sq"},
        tensor<10x128xf32> {logical.updates = "fc2.weight"},
        tensor<10x128xf32> {logical.updates = "fc2.weight.exp_avg"},
        tensor<10x128xf32> {logical.updates = "fc2.weight.exp_avg_sq"},
        tensor<10xf32> {logical.updates = "fc2.bias"},
        tensor<10xf32> {logical.updates = "fc2.bias.exp_avg"},
        tensor<10xf32> {logical.updates = "fc2.bias.exp_avg_sq"},
        tensor<1024xf32> {logical.updates = "aicf.losses"},
        tensor<i64> {logical.updates = "step"}) {
  %step.now = logical.step_inc %step : tensor<i64>
  %fc1 = logical.linear %x, %fc1.weight, %fc1.bias : (tensor<64x64xf32>, tensor<128x64xf32>, tensor<128xf32>) -> tensor<64x128xf32>
  %relu = logical.relu %fc1 : tensor<64x128xf32>
  %fc2 = logical.linear %relu, %fc2.weight, %fc2.bias : (tensor<64x128xf32>, tensor<10x128xf32>, tensor<10xf32>) -> tensor<64x10xf32>
  %loss = logical.cross_entropy %fc2, %y {axis = 1, ignore_index = -100, label_smoothing = 0.000000e+00 : f64, reduction = "mean"} : (tensor<64x10xf32>, tensor<64xi64>) -> tensor<f32>
  %fc1.weight.grad = logical.gradient %loss, %fc1.weight : (tensor<f32>, tensor<128x64xf32>) -> tensor<128x64xf32>
  %fc1.bias.grad = logical.gradient %loss, %fc1.bias : (tensor<f32>, tensor<128xf32>) -> tensor<128xf32>
  %fc2.weight.grad = logical.gradient %loss, %fc2.weight : (tensor<f32>, tensor<10x128xf32>) -> tensor<10x128xf32>
  %fc2.bias.grad = logical.gradient %loss, %fc2.bias : (tensor<f32>, tensor<10xf32>) -> tensor<10xf32>
  %lr = logical.learning_rate %step.now {schedule = "constant", base = 1.000000e-03 : f64, warmup = 0, total = 0, final = 0.000000e+00 : f64} : tensor<i64> -> tensor<f32>
  %fc1.weight.adam, %0, %1 = logical.adam %fc1.weight, %fc1.weight.grad, %lr, %step.now, %fc1.weight.exp_avg, %fc1.weight.exp_avg_sq {beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 0.000000e+00 : f64} : (tensor<128x64xf32>, tensor<128x64xf32>, tensor<f32>, tensor<i64>, tensor<128x64xf32>, tensor<128x64xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>)
  %fc1.bias.adam, %2, %3 = logical.adam %fc1.bias, %fc1.bias.grad, %lr, %step.now, %fc1.bias.exp_avg, %fc1.bias.exp_avg_sq {beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 0.000000e+00 : f64} : (tensor<128xf32>, tensor<128xf32>, tensor<f32>, tensor<i64>, tensor<128xf32>, tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>, tensor<128xf32>)
  %fc2.weight.adam, %4, %5 = logical.adam %fc2.weight, %fc2.weight.grad, %lr, %step.now, %fc2.weight.exp_avg, %fc2.weight.exp_avg_sq {beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 0.000000e+00 : f64} : (tensor<10x128xf32>, tensor<10x128xf32>, tensor<f32>, tensor<i64>, tensor<10x128xf32>, tensor<10x128xf32>) -> (tensor<10x128xf32>, tensor<10x128xf32>, tensor<10x128xf32>)
  %fc2.bias.adam, %6, %7 = logical.adam %fc2.bias, %fc2.bias.grad, %lr, %step.now, %fc2.bias.exp_avg, %fc2.bias.exp_avg_sq {beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 0.000000e+00 : f64} : (tensor<10xf32>, tensor<10xf32>, tensor<f32>, tensor<i64>, tensor<10xf32>, tensor<10xf32>) -> (tensor<10xf32>, tensor<10xf32>, tensor<10xf32>)
  %8 = logical.constant dense<1023> : tensor<i64>
  %losses.slot = logical.and %step.now, %8 : tensor<i64>
  %9 = logical.broadcast %losses.slot {dimensions = []} : tensor<i64> -> tensor<1024xi64>
  %10 = logical.compare "eq" %aicf.slots, %9 : tensor<1024xi64> -> tensor<1024xi1>
  %11 = logical.broadcast %loss {dimensions = []} : tensor<f32> -> tensor<1024xf32>
  %losses.ring = logical.select %10, %11, %aicf.losses : tensor<1024xi1>, tensor<1024xf32>
  func.return %loss, %fc1.weight.adam, %0, %1, %fc1.bias.adam, %2, %3, %fc2.weight.adam, %4, %5, %fc2.bias.adam, %6, %7, %losses.ring, %step.now : tensor<f32>, tensor<128x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<10x128xf32>, tensor<10x128xf32>, tensor<10x128xf32>, tensor<10xf32>, tensor<10xf32>, tensor<10xf32>, tensor<1024xf32>, tensor<i64>
}
