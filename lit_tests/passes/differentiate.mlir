// RUN: aicf-opt %s -p 'assign-ids,differentiate,logical-dce' | filecheck %s

// What the backward part reads of the forward part is saved where it is made; arguments are not, they are there anyway.
// Derivatives stand after the loss, in reverse order, and stand for the op that they belong to.
// CHECK-LABEL: func.func @classifier
// CHECK: %a = logical.relu %h
// CHECK-NEXT: %a.save = logical.save %a {aicf.id = "a.save", aicf.src = ["a"]} : tensor<3x5xf32>
// CHECK: %p.save = logical.save %p
// CHECK: %loss = logical.reduce_sum
// CHECK-NEXT: %loss.grad = logical.constant dense<1.000000e+00> {aicf.id = "loss.grad", aicf.src = ["loss"]} : tensor<f32>
// CHECK-NEXT: %loss.grad.spread = logical.broadcast %loss.grad {dimensions = []
// CHECK-NEXT: %m.grad.mul = logical.mul %loss.grad.spread, %c
// CHECK-NEXT: %p.grad.sum = logical.reduce_sum %m.grad.mul {axes = [1], keepdims
// CHECK: %p.grad.exp = logical.exp %p.save
// CHECK: %p.grad.sub = logical.sub %m.grad.mul
// CHECK-NEXT: %logits.grad.operand = logical.matmul %p.grad.sub, %w2
// CHECK-NEXT: %logits.grad.weight = logical.matmul %p.grad.sub, %a.save {transpose_a
// CHECK: %a.grad.select = logical.select
// CHECK-NEXT: %h.grad.weight = logical.matmul %a.grad.select, %x {transpose_a
// CHECK-NEXT: %h.grad.sum = logical.reduce_sum %a.grad.select {axes = [0]
// CHECK-NEXT: func.return %loss, %h.grad.weight, %h.grad.sum, %logits.grad.weight
func.func @classifier(
    %x : tensor<3x4xf32> {logical.name = "x", logical.role = "input"},
    %c : tensor<3x2xf32> {logical.name = "c", logical.role = "input"},
    %w1 : tensor<5x4xf32> {logical.name = "w1", logical.role = "param"},
    %b1 : tensor<5xf32> {logical.name = "b1", logical.role = "param"},
    %w2 : tensor<2x5xf32> {logical.name = "w2", logical.role = "param"})
    -> (tensor<f32> {logical.name = "loss"}, tensor<5x4xf32> {logical.name = "dw1"}, tensor<5xf32> {logical.name = "db1"}, tensor<2x5xf32> {logical.name = "dw2"}) {
  %h = logical.linear %x, %w1, %b1 : (tensor<3x4xf32>, tensor<5x4xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %a = logical.relu %h : tensor<3x5xf32>
  %logits = logical.linear %a, %w2 : (tensor<3x5xf32>, tensor<2x5xf32>) -> tensor<3x2xf32>
  %p = logical.log_softmax %logits {axis = 1} : tensor<3x2xf32>
  %m = logical.mul %p, %c : tensor<3x2xf32>
  %loss = logical.reduce_sum %m {axes = [0, 1]} : tensor<3x2xf32> -> tensor<f32>
  %dw1 = logical.gradient %loss, %w1 : (tensor<f32>, tensor<5x4xf32>) -> tensor<5x4xf32>
  %db1 = logical.gradient %loss, %b1 : (tensor<f32>, tensor<5xf32>) -> tensor<5xf32>
  %dw2 = logical.gradient %loss, %w2 : (tensor<f32>, tensor<2x5xf32>) -> tensor<2x5xf32>
  func.return %loss, %dw1, %db1, %dw2 : tensor<f32>, tensor<5x4xf32>, tensor<5xf32>, tensor<2x5xf32>
}

// A value read twice gets the sum of what both pass back, the later reader's first.
// CHECK-LABEL: func.func @twice
// CHECK: %s.grad.mul = logical.mul %loss_1.grad.spread, %t.save
// CHECK: %s.grad.mul_1 = logical.mul %loss_1.grad.spread, %e.save
// CHECK: %t.grad.mul = logical.mul %s.grad.mul_1, %t.save
// CHECK-NEXT: %e.grad.mul = logical.mul %s.grad.mul, %e.save
// CHECK-NEXT: %e.grad.total = logical.add %t.grad.mul, %e.grad.mul
func.func @twice(%x : tensor<4xf64> {logical.name = "x", logical.role = "param"})
    -> (tensor<4xf64> {logical.name = "dx"}) {
  %e = logical.exp %x : tensor<4xf64>
  %t = logical.exp %x : tensor<4xf64>
  %s = logical.mul %e, %t : tensor<4xf64>
  %loss = logical.reduce_sum %s {axes = [0]} : tensor<4xf64> -> tensor<f64>
  %dx = logical.gradient %loss, %x : (tensor<f64>, tensor<4xf64>) -> tensor<4xf64>
  func.return %dx : tensor<4xf64>
}

// The second derivative is that of the ops that give the first: 2 * 3 * x for the sum of x ** 3.
// CHECK-LABEL: func.func @second
// CHECK-NOT: logical.gradient
func.func @second(%x : tensor<4xf64> {logical.name = "x", logical.role = "param"})
    -> (tensor<4xf64> {logical.name = "ddx"}) {
  %square = logical.mul %x, %x : tensor<4xf64>
  %cube = logical.mul %square, %x : tensor<4xf64>
  %sum = logical.reduce_sum %cube {axes = [0]} : tensor<4xf64> -> tensor<f64>
  %dx = logical.gradient %sum, %x : (tensor<f64>, tensor<4xf64>) -> tensor<4xf64>
  %dsum = logical.reduce_sum %dx {axes = [0]} : tensor<4xf64> -> tensor<f64>
  %ddx = logical.gradient %dsum, %x : (tensor<f64>, tensor<4xf64>) -> tensor<4xf64>
  func.return %ddx : tensor<4xf64>
}

// A product of bf16 passes back products of bf16; a formula that is computed in f32 passes back in f32, between casts.
// CHECK-LABEL: func.func @short
// CHECK: %n.grad.widen = logical.cast
// CHECK: %n.grad.narrow = logical.cast {{.*}} : tensor<3x4xf32> -> tensor<3x4xbf16>
// CHECK-NEXT: %y.grad.weight = logical.matmul %n.grad.narrow, %x {transpose_a{{.*}}} : (tensor<3x4xbf16>, tensor<3x6xbf16>) -> tensor<4x6xbf16>
func.func @short(
    %x : tensor<3x6xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<4x6xbf16> {logical.name = "w", logical.role = "param"})
    -> (tensor<4x6xbf16> {logical.name = "dw"}) {
  %y = logical.linear %x, %w : (tensor<3x6xbf16>, tensor<4x6xbf16>) -> tensor<3x4xbf16>
  %n = logical.silu %y : tensor<3x4xbf16>
  %loss = logical.reduce_sum %n {axes = [0, 1]} : tensor<3x4xbf16> -> tensor<bf16>
  %dw = logical.gradient %loss, %w : (tensor<bf16>, tensor<4x6xbf16>) -> tensor<4x6xbf16>
  func.return %dw : tensor<4x6xbf16>
}

// Random numbers have no gradient, and what they choose passes back by the same choice: one stream, of one seed and offset.
// CHECK-LABEL: func.func @random
// CHECK: %kept = logical.dropout %noisy, %s, %o {rate = 2.500000e-01
// CHECK: %kept.grad.dropout = logical.dropout %loss_3.grad.spread, %s, %o {rate = 2.500000e-01
// CHECK-NEXT: func.return %{{.*}}, %kept.grad.dropout
func.func @random(
    %x : tensor<4xf32> {logical.name = "x", logical.role = "param"},
    %s : tensor<i64> {logical.name = "seed", logical.role = "meta"},
    %o : tensor<i64> {logical.name = "offset", logical.role = "meta"}) -> (tensor<f32> {logical.name = "loss"}, tensor<4xf32> {logical.name = "dx"}) {
  %noise = logical.philox %s, %o {form = "normal"} : (tensor<i64>, tensor<i64>) -> tensor<4xf32>
  %noisy = logical.add %x, %noise : tensor<4xf32>
  %kept = logical.dropout %noisy, %s, %o {rate = 0.25} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  %loss = logical.reduce_sum %kept {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %loss, %dx : tensor<f32>, tensor<4xf32>
}

// By itself a loss has the derivative 1, also if nothing computes it.
// CHECK-LABEL: func.func @itself
// CHECK-NEXT: %[[ONE:.*]] = logical.constant dense<1.000000e+00>
// CHECK-NEXT: func.return %[[ONE]]
func.func @itself(%x : tensor<f32> {logical.name = "x", logical.role = "param"}) -> (tensor<f32> {logical.name = "dx"}) {
  %dx = logical.gradient %x, %x : (tensor<f32>, tensor<f32>) -> tensor<f32>
  func.return %dx : tensor<f32>
}

// Slices side by side pass back what is written once, each part where it belongs, with zeros only around them all.
// CHECK-LABEL: func.func @side_by_side
// CHECK-NOT: logical.add
// CHECK: [[ALL:%.*]] = logical.concat %ab.grad.mul, %ab.grad.mul_1, %abc.grad.mul_1 {axis = 1
// CHECK-NEXT: [[GRAD:%.*]] = logical.pad [[ALL]], {{.*}} {low = [0, 1], high = [0, 2]
// CHECK-NEXT: func.return [[GRAD]]
func.func @side_by_side(%x : tensor<2x9xf64> {logical.name = "x", logical.role = "param"})
    -> (tensor<2x9xf64> {logical.name = "dx"}) {
  %a = logical.slice %x {starts = [0, 1], sizes = [2, 2], strides = [1, 1]} : tensor<2x9xf64> -> tensor<2x2xf64>
  %b = logical.slice %x {starts = [0, 3], sizes = [2, 2], strides = [1, 1]} : tensor<2x9xf64> -> tensor<2x2xf64>
  %c = logical.slice %x {starts = [0, 5], sizes = [2, 2], strides = [1, 1]} : tensor<2x9xf64> -> tensor<2x2xf64>
  %ab = logical.mul %a, %b : tensor<2x2xf64>
  %abc = logical.mul %ab, %c : tensor<2x2xf64>
  %loss = logical.reduce_sum %abc {axes = [0, 1]} : tensor<2x2xf64> -> tensor<f64>
  %dx = logical.gradient %loss, %x : (tensor<f64>, tensor<2x9xf64>) -> tensor<2x9xf64>
  func.return %dx : tensor<2x9xf64>
}

// Slices that meet, or that leave a gap, pass back a sum.
// CHECK-LABEL: func.func @not_side_by_side
// CHECK-NOT: logical.concat
// CHECK: logical.add
// CHECK: logical.add
// CHECK: func.return
func.func @not_side_by_side(%x : tensor<9xf64> {logical.name = "x", logical.role = "param"})
    -> (tensor<9xf64> {logical.name = "dx"}) {
  %a = logical.slice %x {starts = [0], sizes = [3], strides = [1]} : tensor<9xf64> -> tensor<3xf64>
  %b = logical.slice %x {starts = [2], sizes = [3], strides = [1]} : tensor<9xf64> -> tensor<3xf64>
  %c = logical.slice %x {starts = [6], sizes = [3], strides = [1]} : tensor<9xf64> -> tensor<3xf64>
  %ab = logical.mul %a, %b : tensor<3xf64>
  %abc = logical.mul %ab, %c : tensor<3xf64>
  %loss = logical.reduce_sum %abc {axes = [0]} : tensor<3xf64> -> tensor<f64>
  %dx = logical.gradient %loss, %x : (tensor<f64>, tensor<9xf64>) -> tensor<9xf64>
  func.return %dx : tensor<9xf64>
}

// What is detached is a constant: of x * detach(x) the derivative is the detached value alone, saved as others are.
// CHECK-LABEL: func.func @detached
// CHECK: %still = logical.detach %e 
// CHECK-NEXT: %still.save = logical.save %still
// CHECK: %e_1.grad.mul = logical.mul %product.grad.mul, %e_1.save
// CHECK-NEXT: func.return %e_1.grad.mul
func.func @detached(%x : tensor<4xf32> {logical.name = "x", logical.role = "param"}) -> tensor<4xf32> {
  %e = logical.exp %x : tensor<4xf32>
  %still = logical.detach %e : tensor<4xf32>
  %product = logical.mul %e, %still : tensor<4xf32>
  %loss = logical.reduce_sum %product {axes = [0]} : tensor<4xf32> -> tensor<f32>
  %dx = logical.gradient %loss, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dx : tensor<4xf32>
}

// What a widened value is less its mean is computed again from the value that was widened: half as many bytes are kept.
// CHECK-LABEL: func.func @centered
// CHECK: %scaled.save = logical.save %scaled
// CHECK: %average.save = logical.save %average
// CHECK-NOT: logical.save
// CHECK: %wider.again = logical.cast %scaled.save
// CHECK-NEXT: %averages.again = logical.broadcast %average.save
// CHECK-NEXT: %moved.again = logical.sub %wider.again, %averages.again
func.func @centered(%x : tensor<6x3xbf16> {logical.name = "x", logical.role = "input"}, %w : tensor<6x3xbf16> {logical.name = "w", logical.role = "param"})
    -> (tensor<6x3xbf16> {logical.name = "dw"}) {
  %scaled = logical.mul %x, %w : tensor<6x3xbf16>
  %wider = logical.cast %scaled : tensor<6x3xbf16> -> tensor<6x3xf32>
  %average = logical.reduce_mean %wider {axes = [0]} : tensor<6x3xf32> -> tensor<3xf32>
  %averages = logical.broadcast %average {dimensions = [1]} : tensor<3xf32> -> tensor<6x3xf32>
  %moved = logical.sub %wider, %averages : tensor<6x3xf32>
  %squares = logical.mul %moved, %moved : tensor<6x3xf32>
  %variance = logical.reduce_sum %squares {axes = [0, 1]} : tensor<6x3xf32> -> tensor<f32>
  %dw = logical.gradient %variance, %w : (tensor<f32>, tensor<6x3xbf16>) -> tensor<6x3xbf16>
  func.return %dw : tensor<6x3xbf16>
}

// What means of windows one element apart pass back is such a mean, of gradients with zeros around them.
// CHECK-LABEL: func.func @smoothed
// CHECK: %mean.grad.means = logical.avg_pool {{.*}} {count_include_pad, sizes = [3], strides = [1], dilations = [2], low = [3], high = [4], {{.*}} : tensor<1x2x4xf32> -> tensor<1x2x7xf32>
func.func @smoothed(%x : tensor<1x2x7xf32> {logical.name = "x", logical.role = "param"}) -> (tensor<1x2x7xf32> {logical.name = "dx"}) {
  %mean = logical.avg_pool %x {sizes = [3], strides = [1], dilations = [2], low = [1], high = [0], count_include_pad} : tensor<1x2x7xf32> -> tensor<1x2x4xf32>
  %squares = logical.mul %mean, %mean : tensor<1x2x4xf32>
  %total_mean = logical.reduce_sum %squares {axes = [0, 1, 2]} : tensor<1x2x4xf32> -> tensor<f32>
  %dx = logical.gradient %total_mean, %x : (tensor<f32>, tensor<1x2x7xf32>) -> tensor<1x2x7xf32>
  func.return %dx : tensor<1x2x7xf32>
}

// Means of windows side by side repeat what they pass back, rounded before.
// CHECK-LABEL: func.func @halved
// CHECK: %half.grad.narrow = logical.cast %half.grad.share {{.*}} -> tensor<1x2x3xbf16>
// CHECK-NEXT: %half.grad.apart = logical.reshape %half.grad.narrow {{.*}} -> tensor<1x2x3x1xbf16>
// CHECK-NEXT: %half.grad.spread = logical.broadcast %half.grad.apart {{.*}} -> tensor<1x2x3x2xbf16>
// CHECK-NEXT: %half.grad.whole = logical.reshape %half.grad.spread {{.*}} -> tensor<1x2x6xbf16>
func.func @halved(%x : tensor<1x2x6xbf16> {logical.name = "x", logical.role = "param"}) -> (tensor<1x2x6xbf16> {logical.name = "dx"}) {
  %half = logical.avg_pool %x {sizes = [2], strides = [2], dilations = [1], low = [0], high = [0]} : tensor<1x2x6xbf16> -> tensor<1x2x3xbf16>
  %wide = logical.cast %half : tensor<1x2x3xbf16> -> tensor<1x2x3xf32>
  %total_half = logical.reduce_sum %wide {axes = [0, 1, 2]} : tensor<1x2x3xf32> -> tensor<f32>
  %dx = logical.gradient %total_half, %x : (tensor<f32>, tensor<1x2x6xbf16>) -> tensor<1x2x6xbf16>
  func.return %dx : tensor<1x2x6xbf16>
}

// A maximum passes back to the first of the largest elements: each window keeps an 8-bit number of it.
// CHECK-LABEL: func.func @pooled
// CHECK: %best.grad.taps = logical.max_pool_taps %x {sizes = [3], strides = [2], dilations = [1], low = [1], high = [0], {{.*}} -> tensor<1x2x2xi8>
// CHECK-NEXT: %best.grad.operand = logical.max_pool_grad %best.grad.taps, %widest.grad.cast {whole = [4], sizes = [3], strides = [2], dilations = [1], low = [1], {{.*}} -> tensor<1x2x4xbf16>
func.func @pooled(%x : tensor<1x2x4xbf16> {logical.name = "x", logical.role = "param"}) -> (tensor<1x2x4xbf16> {logical.name = "dx"}) {
  %best = logical.max_pool %x {sizes = [3], strides = [2], dilations = [1], low = [1], high = [0]} : tensor<1x2x4xbf16> -> tensor<1x2x2xbf16>
  %widest = logical.cast %best : tensor<1x2x2xbf16> -> tensor<1x2x2xf32>
  %total_best = logical.reduce_sum %widest {axes = [0, 1, 2]} : tensor<1x2x2xf32> -> tensor<f32>
  %dx = logical.gradient %total_best, %x : (tensor<f32>, tensor<1x2x4xbf16>) -> tensor<1x2x4xbf16>
  func.return %dx : tensor<1x2x4xbf16>
}
