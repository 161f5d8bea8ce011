// RUN: aicf-opt %s -p 'assign-ids,lower-optimizers,logical-cse' | filecheck %s

// The rate is one number for all elements. Without momentum the step's number is of no use.
// CHECK-LABEL: func.func @descent
// CHECK-NEXT: %new.rate = logical.broadcast %lr {dimensions = [], aicf.id = "new.rate", aicf.src = ["new"]}
// CHECK-NEXT: %new.change = logical.mul %new.rate, %g
// CHECK-NEXT: %new.sub = logical.sub %w, %new.change
// CHECK-NEXT: func.return %new.sub
func.func @descent(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %g : tensor<4xf32> {logical.name = "g", logical.role = "input"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "input"},
    %n : tensor<i64> {logical.name = "n", logical.role = "input"})
    -> (tensor<4xf32> {logical.updates = "w"}) {
  %new = logical.sgd %w, %g, %lr, %n : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  func.return %new : tensor<4xf32>
}

// The momentum that begins with zeros needs no case for the first step: there is no comparison of %n.
// CHECK-LABEL: func.func @nesterov
// CHECK: %n1.decay = logical.mul %w,
// CHECK-NEXT: %n1.decayed = logical.add %g, %n1.decay
// CHECK-NOT: logical.compare
// CHECK: %n1.kept = logical.mul %m,
// CHECK-NEXT: %n1.momentum = logical.add %n1.kept, %n1.decayed
// CHECK-NEXT: %n1.ahead = logical.mul %n1.momentum,
// CHECK-NEXT: %n1.way = logical.add %n1.decayed, %n1.ahead
// CHECK: func.return %n1.sub, %n1.momentum
func.func @nesterov(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %g : tensor<4xf32> {logical.name = "g", logical.role = "input"},
    %m : tensor<4xf32> {logical.name = "w.momentum_buffer", logical.role = "state"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "input"},
    %n : tensor<i64> {logical.name = "n", logical.role = "input"})
    -> (tensor<4xf32> {logical.updates = "w"}, tensor<4xf32> {logical.updates = "w.momentum_buffer"}) {
  %n1, %n2 = logical.sgd %w, %g, %lr, %n, %m {momentum = 0.5, nesterov, weight_decay = 0.25}
      : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return %n1, %n2 : tensor<4xf32>, tensor<4xf32>
}

// With dampening the first gradient counts whole, the others by 1 - dampening.
// CHECK-LABEL: func.func @dampened
// CHECK: %d1.damped = logical.mul %g, %{{.*}}
// CHECK: %d1.first = logical.compare "eq" %n, %d1.one
// CHECK: %d1.buffer = logical.select %d1.first.spread, %g, %d1.momentum
// CHECK: func.return %d1.sub, %d1.buffer
func.func @dampened(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %g : tensor<4xf32> {logical.name = "g", logical.role = "input"},
    %m : tensor<4xf32> {logical.name = "w.momentum_buffer", logical.role = "state"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "input"},
    %n : tensor<i64> {logical.name = "n", logical.role = "input"})
    -> (tensor<4xf32> {logical.updates = "w"}, tensor<4xf32> {logical.updates = "w.momentum_buffer"}) {
  %d1, %d2 = logical.sgd %w, %g, %lr, %n, %m {momentum = 0.5, dampening = 0.25}
      : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return %d1, %d2 : tensor<4xf32>, tensor<4xf32>
}

// The corrections of the bias are the same for both parameters; the decay of one of them stands apart from its gradient.
// CHECK-LABEL: func.func @adam
// CHECK: %w.step.mean = logical.add %w.step.mean.kept, %w.step.mean.new
// CHECK-NEXT: %w.step.square = logical.mul %g, %g
// CHECK: %w.step.variance = logical.add
// CHECK-NEXT: %w.step.variance.correction = logical.bias_corr %n {beta = 9.990000e-01 : f64
// CHECK: %w.step.mean.correction = logical.bias_corr %n {beta = 9.000000e-01 : f64
// CHECK: %w.step.sub = logical.sub %w, %w.step.change
// CHECK-NOT: logical.bias_corr
// CHECK: %b.step.decayed = logical.sub %b, %b.step.mul
// CHECK: %b.step.square = logical.mul %h, %h
// CHECK: %b.step.largest = logical.max %bx, %b.step.variance
// CHECK: %b.step.sub = logical.sub %b.step.decayed, %b.step.change
// CHECK-NEXT: func.return %w.step.sub, %w.step.mean, %w.step.variance, %b.step.sub, %b.step.mean, %b.step.variance, %b.step.largest
func.func @adam(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<3xf32> {logical.name = "b", logical.role = "param"},
    %g : tensor<4xf32> {logical.name = "g", logical.role = "input"},
    %h : tensor<3xf32> {logical.name = "h", logical.role = "input"},
    %m : tensor<4xf32> {logical.name = "w.exp_avg", logical.role = "state"},
    %v : tensor<4xf32> {logical.name = "w.exp_avg_sq", logical.role = "state"},
    %bm : tensor<3xf32> {logical.name = "b.exp_avg", logical.role = "state"},
    %bv : tensor<3xf32> {logical.name = "b.exp_avg_sq", logical.role = "state"},
    %bx : tensor<3xf32> {logical.name = "b.max_exp_avg_sq", logical.role = "state"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "input"},
    %n : tensor<i64> {logical.name = "n", logical.role = "input"})
    -> (tensor<4xf32> {logical.updates = "w"}, tensor<4xf32> {logical.updates = "w.exp_avg"},
        tensor<4xf32> {logical.updates = "w.exp_avg_sq"}, tensor<3xf32> {logical.updates = "b"},
        tensor<3xf32> {logical.updates = "b.exp_avg"}, tensor<3xf32> {logical.updates = "b.exp_avg_sq"},
        tensor<3xf32> {logical.updates = "b.max_exp_avg_sq"}) {
  %0, %1, %2 = logical.adam %w, %g, %lr, %n, %m, %v {aicf.id = "w.step"}
      : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>, tensor<4xf32>)
      -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  %3, %4, %5, %6 = logical.adamw %b, %h, %lr, %n, %bm, %bv, %bx {aicf.id = "b.step", weight_decay = 0.1, amsgrad}
      : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
      -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  func.return %0, %1, %2, %3, %4, %5, %6
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}
