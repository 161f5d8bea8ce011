// RUN: aicf-opt %s -p 'assign-ids,check-finite' | filecheck %s
// RUN: aicf-opt %s -p 'assign-ids,check-finite,verify-logical,lower-optimizers,logical-canonicalize,logical-cse' | filecheck %s --check-prefix=LATER

// The loss, the gradient of an optimizer's step, and the new value of a state that none updates are tested; a scalar that
// is no float is not, nor is what a training step keeps of its own.
// CHECK: emit.decision "check-finite" ["step", "loss", "d", "e", "mean"] choice "updates held back by aicf.bad_step" because "4 values are tested
// CHECK-LABEL: func.func @step(
// CHECK-SAME: {logical.name = "aicf.bad_step", logical.role = "meta", aicf.start = dense<0> : tensor<i64>})
// CHECK-SAME: tensor<i64> {logical.updates = "aicf.bad_step"})
// Numbers are tested as they are, tensors of one type side by side: what is after the first has 4 more elements at once.
// CHECK: %e.flat = logical.reshape %e {{.*}} -> tensor<4xf32>
// CHECK: %d.flat = logical.reshape %d {{.*}} -> tensor<6xf32>
// CHECK: %now.tested = logical.concat %e.flat, %d.flat {axis = 0
// CHECK: logical.mul %now.tested
// CHECK: logical.reduce_sum {{.*}} : tensor<10xf32> -> tensor<f32>
// A type of 16 bits is tested in that type; only the sum is widened.
// CHECK: logical.reduce_sum {{.*}} : tensor<4xbf16> -> tensor<bf16>
// CHECK: logical.cast {{.*}} : tensor<bf16> -> tensor<f32>
// CHECK-NOT: %ring.new.flat
// CHECK: %now.finite = logical.compare "eq"
// CHECK: %now.found = logical.select %now.finite, {{%.*}}, %now
// CHECK: %now.going = logical.compare "eq" %aicf.bad_step,
// CHECK: %now.bad = logical.select %now.going, %now.found, %aicf.bad_step
// CHECK: %now.fine = logical.compare "eq" %now.bad,
// CHECK: [[FINE:%.*]] = logical.broadcast %now.fine {dimensions = []
// CHECK: [[W:%.*]] = logical.select [[FINE]], %w.new, %w
// CHECK: [[MEAN:%.*]] = logical.select {{%.*}}, %mean, %m
// CHECK: [[RING:%.*]] = logical.select {{%.*}}, %ring.new, %ring
// CHECK: [[NOW:%.*]] = logical.select %now.fine, %now, %count
// CHECK: return %loss, %classes, [[W]], %{{.*}}, [[MEAN]], [[RING]], [[NOW]], %now.bad

// 0 times a number is not 0 for all numbers: nothing is folded away.
// LATER: logical.mul %loss
// LATER: logical.mul %now.tested
func.func @step(
    %g : tensor<2x3xf32> {logical.name = "g", logical.role = "input"},
    %x : tensor<4xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<2x3xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "param"},
    %m : tensor<4xbf16> {logical.name = "m", logical.role = "state"},
    %ring : tensor<4xbf16> {logical.name = "aicf.ring", logical.role = "state"},
    %lr : tensor<f32> {logical.name = "lr", logical.role = "meta"},
    %count : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<f32> {logical.name = "loss"},
        tensor<i64> {logical.name = "classes"},
        tensor<2x3xf32> {logical.updates = "w"},
        tensor<4xf32> {logical.updates = "b"},
        tensor<4xbf16> {logical.updates = "m"},
        tensor<4xbf16> {logical.updates = "aicf.ring"},
        tensor<i64> {logical.updates = "step"}) {
  %loss = logical.reduce_mean %g {axes = [0, 1]} : tensor<2x3xf32> -> tensor<f32>
  %classes = logical.constant dense<3> : tensor<i64>
  %now = logical.step_inc %count : tensor<i64>
  %d = logical.neg %g : tensor<2x3xf32>
  %w.new = logical.sgd %w, %d, %lr, %now : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>) -> tensor<2x3xf32>
  %e = logical.neg %b : tensor<4xf32>
  %b.new = logical.sgd %b, %e, %lr, %now : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>) -> tensor<4xf32>
  %mean = logical.add %m, %x : tensor<4xbf16>
  %ring.new = logical.mul %ring, %x : tensor<4xbf16>
  func.return %loss, %classes, %w.new, %b.new, %mean, %ring.new, %now : tensor<f32>, tensor<i64>, tensor<2x3xf32>, tensor<4xf32>, tensor<4xbf16>, tensor<4xbf16>, tensor<i64>
}

// What updates nothing is left as it is.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: -> (tensor<4xf32> {logical.name = "y"}) {
// CHECK-NEXT: logical.exp
// CHECK-NEXT: return
func.func @forward(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %y = logical.exp %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
