// RUN: aicf-opt %s -p lower-logical | filecheck %s

// linear is matmul, broadcast and add; without ids there is nothing to derive.
// CHECK-LABEL: func.func @linear
func.func @linear(%x : tensor<2x3xf32>, %v : tensor<3xf32>, %w : tensor<4x3xf32>, %b : tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>) {
  // CHECK-NEXT: %fc1.matmul = logical.matmul %x, %w {transpose_b, aicf.id = "fc1.matmul", aicf.src = ["fc1"]} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %fc1.bias.broadcast = logical.broadcast %b {dimensions = [1], aicf.id = "fc1.bias.broadcast", aicf.src = ["fc1"]} : tensor<4xf32> -> tensor<2x4xf32>
  // CHECK-NEXT: %fc1.bias = logical.add %fc1.matmul, %fc1.bias.broadcast {aicf.id = "fc1.bias", aicf.src = ["fc1"]} : tensor<2x4xf32>
  %0 = logical.linear %x, %w, %b {aicf.id = "fc1", aicf.src = ["fc1"]} : (tensor<2x3xf32>, tensor<4x3xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %0 = logical.matmul %x, %w {transpose_b} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  %1 = logical.linear %x, %w : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  // A vector is a matrix of one row; its bias has the shape already.
  // CHECK-NEXT: %1 = logical.reshape %v : tensor<3xf32> -> tensor<1x3xf32>
  // CHECK-NEXT: %2 = logical.matmul %1, %w {transpose_b} : (tensor<1x3xf32>, tensor<4x3xf32>) -> tensor<1x4xf32>
  // CHECK-NEXT: %3 = logical.reshape %2 : tensor<1x4xf32> -> tensor<4xf32>
  // CHECK-NEXT: %4 = logical.add %3, %b : tensor<4xf32>
  %2 = logical.linear %v, %w, %b : (tensor<3xf32>, tensor<4x3xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %0, %1, %2 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>
}

// Kernels know operands of one batch, and one right matrix for all: broadcasts, which are strides of 0, make them so.
// CHECK-LABEL: func.func @matmul
func.func @matmul(%a : tensor<4x1x2x3xf32>, %b : tensor<5x3x6xf32>, %w : tensor<1x3x6xf32>) -> (tensor<4x5x2x6xf32>, tensor<4x1x2x6xf32>) {
  // CHECK-NEXT: %p.lhs = logical.broadcast %a {dimensions = [0, 1, 2, 3], {{.*}}} : tensor<4x1x2x3xf32> -> tensor<4x5x2x3xf32>
  // CHECK-NEXT: %p.rhs = logical.broadcast %b {dimensions = [1, 2, 3], {{.*}}} : tensor<5x3x6xf32> -> tensor<4x5x3x6xf32>
  // CHECK-NEXT: %p = logical.matmul %p.lhs, %p.rhs {{.*}} : (tensor<4x5x2x3xf32>, tensor<4x5x3x6xf32>) -> tensor<4x5x2x6xf32>
  %0 = logical.matmul %a, %b {aicf.id = "p", aicf.src = ["p"]} : (tensor<4x1x2x3xf32>, tensor<5x3x6xf32>) -> tensor<4x5x2x6xf32>
  // CHECK-NEXT: %q.matrix = logical.reshape %w {{.*}} : tensor<1x3x6xf32> -> tensor<3x6xf32>
  // CHECK-NEXT: %q = logical.matmul %a, %q.matrix {{.*}} : (tensor<4x1x2x3xf32>, tensor<3x6xf32>) -> tensor<4x1x2x6xf32>
  %1 = logical.matmul %a, %w {aicf.id = "q", aicf.src = ["q"]} : (tensor<4x1x2x3xf32>, tensor<1x3x6xf32>) -> tensor<4x1x2x6xf32>
  func.return %0, %1 : tensor<4x5x2x6xf32>, tensor<4x1x2x6xf32>
}

// 0.5 * x * (1 + erf(x * sqrt(0.5))); coefficients are splats of the full shape, symbolic too.
// CHECK-LABEL: func.func @gelu
func.func @gelu(%x : tensor<?x3xf64, #logical.dims<["N", ""]>>) -> tensor<?x3xf64, #logical.dims<["N", ""]>> {
  // CHECK-NEXT: %g.sqrt_half = logical.constant dense<0.70710678118654757> {aicf.id = "g.sqrt_half", aicf.src = ["g"]} : tensor<?x3xf64
  // CHECK-NEXT: %g.scaled = logical.mul %x, %g.sqrt_half
  // CHECK-NEXT: %g.erf = logical.erf %g.scaled
  // CHECK-NEXT: %g.one = logical.constant dense<1.000000e+00>
  // CHECK-NEXT: %g.shifted = logical.add %g.erf, %g.one
  // CHECK-NEXT: %g.half = logical.constant dense<5.000000e-01>
  // CHECK-NEXT: %g.halved = logical.mul %x, %g.half
  // CHECK-NEXT: %g.mul = logical.mul %g.halved, %g.shifted
  // CHECK-NEXT: func.return %g.mul
  %0 = logical.gelu %x {aicf.id = "g", aicf.src = ["g"]} : tensor<?x3xf64, #logical.dims<["N", ""]>>
  func.return %0 : tensor<?x3xf64, #logical.dims<["N", ""]>>
}

// The tanh approximation, in f32 between casts for a bf16 value.
// CHECK-LABEL: func.func @gelu_tanh
func.func @gelu_tanh(%x : tensor<3xbf16>) -> tensor<3xbf16> {
  // CHECK-NEXT: %g.widen = logical.cast %x {{.*}} : tensor<3xbf16> -> tensor<3xf32>
  // CHECK-NEXT: %g.square = logical.mul %g.widen, %g.widen
  // CHECK-NEXT: %g.cube = logical.mul %g.square, %g.widen
  // CHECK-NEXT: %g.cubic_coefficient = logical.constant dense<4.471500e-02>
  // CHECK-NEXT: %g.cubic = logical.mul %g.cube, %g.cubic_coefficient
  // CHECK-NEXT: %g.inner = logical.add %g.widen, %g.cubic
  // CHECK-NEXT: %g.sqrt_2_over_pi = logical.constant dense<0.797884583>
  // CHECK-NEXT: %g.scaled = logical.mul %g.inner, %g.sqrt_2_over_pi
  // CHECK-NEXT: %g.tanh = logical.tanh %g.scaled
  // CHECK: %g.narrow = logical.cast %g.mul {{.*}} : tensor<3xf32> -> tensor<3xbf16>
  %0 = logical.gelu %x {approximate = "tanh", aicf.id = "g@N=1", aicf.src = ["g"]} : tensor<3xbf16>
  func.return %0 : tensor<3xbf16>
}

// The largest element is kept finite before it is subtracted: inf - inf is no number.
// CHECK-LABEL: func.func @logsumexp
func.func @logsumexp(%x : tensor<2x3xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: %l.max = logical.reduce_max %x {axes = [1], keepdims,
  // CHECK-NEXT: %l.constant = logical.constant dense<-3.40282347e+38>
  // CHECK-NEXT: %l.above = logical.max %l.max, %l.constant
  // CHECK-NEXT: %l.constant_1 = logical.constant dense<3.40282347e+38>
  // CHECK-NEXT: %l.shift = logical.min %l.above, %l.constant_1
  // CHECK-NEXT: %l.shift.broadcast = logical.broadcast %l.shift
  // CHECK-NEXT: %l.sub = logical.sub %x, %l.shift.broadcast
  // CHECK-NEXT: %l.exp = logical.exp %l.sub
  // CHECK-NEXT: %l.sum = logical.reduce_sum %l.exp
  // CHECK-NEXT: %l.log = logical.log %l.sum
  // CHECK-NEXT: %l.add = logical.add %l.log, %l.shift
  // CHECK-NEXT: %l.reshape = logical.reshape %l.add {{.*}} : tensor<2x1xf32> -> tensor<2xf32>
  %0 = logical.reduce_logsumexp %x {axes = [1], aicf.id = "l", aicf.src = ["l"]} : tensor<2x3xf32> -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}

// any is the or of what is not 0, all the and; i1 is the truth already. A norm is the root of a sum of squares.
// CHECK-LABEL: func.func @truth
func.func @truth(%x : tensor<2x3xf32>, %p : tensor<2x3xi1>) -> (tensor<2xi1>, tensor<3xi1>, tensor<2xf32>) {
  // CHECK-NEXT: %a.truth = logical.cast %x {{.*}} : tensor<2x3xf32> -> tensor<2x3xi1>
  // CHECK-NEXT: %a.or = logical.reduce_max %a.truth {axes = [1],
  %0 = logical.reduce_any %x {axes = [1], aicf.id = "a", aicf.src = ["a"]} : tensor<2x3xf32> -> tensor<2xi1>
  // CHECK-NEXT: %b.and = logical.reduce_min %p {axes = [0],
  %1 = logical.reduce_all %p {axes = [0], aicf.id = "b", aicf.src = ["b"]} : tensor<2x3xi1> -> tensor<3xi1>
  // CHECK-NEXT: %n.square = logical.mul %x, %x
  // CHECK-NEXT: %n.sum = logical.reduce_sum %n.square {axes = [1],
  // CHECK-NEXT: %n.sqrt = logical.sqrt %n.sum
  %2 = logical.reduce_l2 %x {axes = [1], aicf.id = "n", aicf.src = ["n"]} : tensor<2x3xf32> -> tensor<2xf32>
  func.return %0, %1, %2 : tensor<2xi1>, tensor<3xi1>, tensor<2xf32>
}

// The place of the largest element is the smallest of the places that hold it, or of those that hold a NaN.
// CHECK-LABEL: func.func @argmax
func.func @argmax(%x : tensor<2x3xf32>) -> tensor<2xi64> {
  // CHECK-NEXT: %a.max = logical.reduce_max %x {axes = [1], keepdims,
  // CHECK-NEXT: %a.extreme = logical.broadcast %a.max
  // CHECK-NEXT: %a.found = logical.compare "eq" %x, %a.extreme
  // CHECK-NEXT: %a.nan = logical.compare "ne" %x, %x
  // CHECK-NEXT: %a.or = logical.max %a.found, %a.nan
  // CHECK-NEXT: %a.iota = logical.iota {axis = 1,
  // CHECK-NEXT: %a.beyond = logical.constant dense<2147483647>
  // CHECK-NEXT: %a.candidate = logical.select %a.or, %a.iota, %a.beyond
  // CHECK-NEXT: %a.least = logical.reduce_min %a.candidate {axes = [1],
  // CHECK-NEXT: %a.i64 = logical.cast %a.least {{.*}} : tensor<2xi32> -> tensor<2xi64>
  %0 = logical.argmax %x {axis = 1, aicf.id = "a", aicf.src = ["a"]} : tensor<2x3xf32> -> tensor<2xi64>
  func.return %0 : tensor<2xi64>
}

// The norms of channels: a factor for each channel; groups are dimensions of their own before anything is computed.
// CHECK-LABEL: func.func @channels
func.func @channels(%x : tensor<2x6x4xf16>, %c : tensor<6xf16>) -> tensor<2x6x4xf16> {
  // CHECK-NEXT: %b.widen = logical.cast %x
  // CHECK: %b.centered = logical.sub %b.widen, %b.mean.broadcast
  // CHECK: %b.rsqrt = logical.rsqrt %b.shifted {{.*}} : tensor<6xf32>
  // CHECK-NEXT: %b.factor = logical.mul %b.rsqrt, %b.scale.widen
  // CHECK-NEXT: %b.factor.broadcast = logical.broadcast %b.factor {dimensions = [1],
  // CHECK-NEXT: %b.scale = logical.mul %b.centered, %b.factor.broadcast
  // CHECK: %b.narrow = logical.cast %b.bias
  %0 = logical.batch_norm %x, %c, %c, %c, %c {aicf.id = "b", aicf.src = ["b"]} : (tensor<2x6x4xf16>, tensor<6xf16>, tensor<6xf16>, tensor<6xf16>, tensor<6xf16>) -> tensor<2x6x4xf16>
  // CHECK-NEXT: %g.groups = logical.reshape %b.narrow {{.*}} : tensor<2x6x4xf16> -> tensor<2x3x2x4xf16>
  // CHECK-NEXT: %g.scale.groups = logical.reshape %c {{.*}} : tensor<6xf16> -> tensor<3x2xf16>
  // CHECK: %g.mean.sum = logical.reduce_sum %g.widen {axes = [2, 3], keepdims,
  // CHECK: %g.narrow = logical.cast %g.bias
  // CHECK-NEXT: %g.channels = logical.reshape %g.narrow {{.*}} : tensor<2x3x2x4xf16> -> tensor<2x6x4xf16>
  %1 = logical.group_norm %0, %c, %c {groups = 3, aicf.id = "g", aicf.src = ["g"]} : (tensor<2x6x4xf16>, tensor<6xf16>, tensor<6xf16>) -> tensor<2x6x4xf16>
  func.return %1 : tensor<2x6x4xf16>
}

// x * sigmoid(x); a half precision value is widened once and narrowed once.
// CHECK-LABEL: func.func @silu
func.func @silu(%x : tensor<3xf32>, %h : tensor<3xf16>) -> (tensor<3xf32>, tensor<3xf16>) {
  // CHECK-NEXT: %s.sigmoid = logical.sigmoid %x
  // CHECK-NEXT: %s.mul = logical.mul %x, %s.sigmoid
  %0 = logical.silu %x {aicf.id = "s", aicf.src = ["s"]} : tensor<3xf32>
  // CHECK-NEXT: %t.widen = logical.cast %h {{.*}} : tensor<3xf16> -> tensor<3xf32>
  // CHECK-NEXT: %t.sigmoid = logical.sigmoid %t.widen
  // CHECK-NEXT: %t.mul = logical.mul %t.widen, %t.sigmoid
  // CHECK-NEXT: %t.narrow = logical.cast %t.mul {{.*}} : tensor<3xf32> -> tensor<3xf16>
  %1 = logical.silu %h {aicf.id = "t", aicf.src = ["t"]} : tensor<3xf16>
  func.return %0, %1 : tensor<3xf32>, tensor<3xf16>
}

// CHECK-LABEL: func.func @softmax
func.func @softmax(%x : tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK-NEXT: %s.max = logical.reduce_max %x {axes = [0], keepdims, aicf.id = "s.max", aicf.src = ["s"]} : tensor<2x3xf32> -> tensor<1x3xf32>
  // CHECK-NEXT: %s.max.broadcast = logical.broadcast %s.max {dimensions = [0, 1], aicf.id = "s.max.broadcast", aicf.src = ["s"]} : tensor<1x3xf32> -> tensor<2x3xf32>
  // CHECK-NEXT: %s.sub = logical.sub %x, %s.max.broadcast
  // CHECK-NEXT: %s.exp = logical.exp %s.sub
  // CHECK-NEXT: %s.sum = logical.reduce_sum %s.exp {axes = [0], keepdims
  // CHECK-NEXT: %s.sum.broadcast = logical.broadcast %s.sum
  // CHECK-NEXT: %s.div = logical.div %s.exp, %s.sum.broadcast
  %0 = logical.softmax %x {axis = 0, aicf.id = "s", aicf.src = ["s"]} : tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @layer_norm
func.func @layer_norm(%x : tensor<2x3x4xf32>, %s : tensor<3x4xf32>) -> tensor<2x3x4xf32> {
  // CHECK-NEXT: %n.mean.sum = logical.reduce_sum %x {axes = [1, 2], keepdims
  // CHECK-NEXT: %n.mean.count = logical.constant dense<1.200000e+01> {{.*}} : tensor<2x1x1xf32>
  // CHECK-NEXT: %n.mean = logical.div %n.mean.sum, %n.mean.count
  // CHECK-NEXT: %n.mean.broadcast = logical.broadcast %n.mean
  // CHECK-NEXT: %n.centered = logical.sub %x, %n.mean.broadcast
  // CHECK-NEXT: %n.square = logical.mul %n.centered, %n.centered
  // CHECK-NEXT: %n.variance.sum = logical.reduce_sum %n.square {axes = [1, 2], keepdims
  // CHECK-NEXT: %n.variance.count = logical.constant dense<1.200000e+01>
  // CHECK-NEXT: %n.variance = logical.div %n.variance.sum, %n.variance.count
  // CHECK-NEXT: %n.epsilon = logical.constant dense<1.000000e-05>
  // CHECK-NEXT: %n.shifted = logical.add %n.variance, %n.epsilon
  // CHECK-NEXT: %n.rsqrt = logical.rsqrt %n.shifted
  // CHECK-NEXT: %n.rsqrt.broadcast = logical.broadcast %n.rsqrt
  // CHECK-NEXT: %n.normalized = logical.mul %n.centered, %n.rsqrt.broadcast
  // CHECK-NEXT: %n.scale.broadcast = logical.broadcast %s {dimensions = [1, 2]
  // CHECK-NEXT: %n.scale = logical.mul %n.normalized, %n.scale.broadcast
  // CHECK-NEXT: %n.bias.broadcast = logical.broadcast %s {dimensions = [1, 2]
  // CHECK-NEXT: %n.bias = logical.add %n.scale, %n.bias.broadcast
  %0 = logical.layer_norm %x, %s, %s {axis = 1, aicf.id = "n", aicf.src = ["n"]} : (tensor<2x3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
  func.return %0 : tensor<2x3x4xf32>
}

// A mean divides by a count that the type holds exactly: f32 for f16, f64 where f32 has no such integer.
// CHECK-LABEL: func.func @mean
func.func @mean(%x : tensor<4097xf16>, %y : tensor<16777217xf32>) -> (tensor<f16>, tensor<1xf32>) {
  // CHECK-NEXT: %a.widen = logical.cast %x {{.*}} : tensor<4097xf16> -> tensor<4097xf32>
  // CHECK-NEXT: %a.sum = logical.reduce_sum %a.widen {axes = [0]
  // CHECK-NEXT: %a.count = logical.constant dense<4.097000e+03> {{.*}} : tensor<f32>
  // CHECK-NEXT: %a = logical.div %a.sum, %a.count {aicf.id = "a", aicf.src = ["a"]} : tensor<f32>
  // CHECK-NEXT: %a.narrow = logical.cast %a {{.*}} : tensor<f32> -> tensor<f16>
  %0 = logical.reduce_mean %x {axes = [0], aicf.id = "a", aicf.src = ["a"]} : tensor<4097xf16> -> tensor<f16>
  // CHECK-NEXT: logical.cast %y : tensor<16777217xf32> -> tensor<16777217xf64>
  // CHECK: logical.constant dense<0x4170000010000000> : tensor<1xf64>
  %1 = logical.reduce_mean %y {axes = [0], keepdims} : tensor<16777217xf32> -> tensor<1xf32>
  func.return %0, %1 : tensor<f16>, tensor<1xf32>
}

// The bucket of an id stays last; an id that is taken is not taken again.
// CHECK-LABEL: func.func @ids
func.func @ids(%x : tensor<2x3xf32>, %w : tensor<4x3xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: aicf.id = "fc2.matmul@N=2"
  %0 = logical.exp %x {aicf.id = "fc2.matmul@N=2", aicf.src = ["e"]} : tensor<2x3xf32>
  // CHECK-NEXT: aicf.id = "fc2.matmul@N=2_1", aicf.src = ["fc2"]
  %1 = logical.linear %0, %w {aicf.id = "fc2@N=2", aicf.src = ["fc2"]} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  func.return %1 : tensor<2x4xf32>
}

// A small whole exponent is a product, also after a broadcast; any other stays a power.
// CHECK-LABEL: func.func @powers
func.func @powers(%x : tensor<3xf32>, %h : tensor<3xf16>) -> (tensor<3xf32>, tensor<3xf16>, tensor<3xf32>) {
  %two = logical.constant dense<2.0> : tensor<3xf32>
  // CHECK: %p.square = logical.mul %x, %x
  %0 = logical.pow %x, %two {aicf.id = "p", aicf.src = ["p"]} : tensor<3xf32>
  %three = logical.constant dense<3.0> : tensor<f16>
  %wide = logical.broadcast %three {dimensions = []} : tensor<f16> -> tensor<3xf16>
  // CHECK: %q.widen = logical.cast %h
  // CHECK-NEXT: %q.square = logical.mul %q.widen, %q.widen
  // CHECK-NEXT: %q.cube = logical.mul %q.square, %q.widen
  // CHECK-NEXT: %q.narrow = logical.cast %q.cube
  %1 = logical.pow %h, %wide {aicf.id = "q", aicf.src = ["q"]} : tensor<3xf16>
  %half = logical.constant dense<0.5> : tensor<3xf32>
  // CHECK: logical.pow %p.square, %half
  %2 = logical.pow %0, %half {aicf.id = "r", aicf.src = ["r"]} : tensor<3xf32>
  // CHECK: func.return %p.square, %q.narrow
  func.return %0, %1, %2 : tensor<3xf32>, tensor<3xf16>, tensor<3xf32>
}

// expm1 and log1p where a plain exponential would cancel.
// CHECK-LABEL: func.func @smooth
func.func @smooth(%x : tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  // CHECK-NEXT: %e.expm1 = logical.expm1 %x
  // CHECK-NEXT: %e.constant = logical.constant dense<2.000000e+00>
  // CHECK-NEXT: %e.mul = logical.mul %e.expm1, %e.constant
  // CHECK-NEXT: %e.zero = logical.constant dense<0.000000e+00>
  // CHECK-NEXT: %e.positive = logical.compare "gt" %x, %e.zero
  // CHECK-NEXT: %e.select = logical.select %e.positive, %x, %e.mul
  %0 = logical.elu %x {alpha = 2.0, aicf.id = "e", aicf.src = ["e"]} : tensor<3xf32>
  // CHECK-NEXT: %s.abs = logical.abs %x
  // CHECK-NEXT: %s.neg = logical.neg %s.abs
  // CHECK-NEXT: %s.exp = logical.exp %s.neg
  // CHECK-NEXT: %s.log1p = logical.log1p %s.exp
  // CHECK-NEXT: %s.relu = logical.relu %x
  // CHECK-NEXT: %s.add = logical.add %s.relu, %s.log1p
  %1 = logical.softplus %x {aicf.id = "s", aicf.src = ["s"]} : tensor<3xf32>
  func.return %0, %1 : tensor<3xf32>, tensor<3xf32>
}

// A bound of 0 and one of 1; integers are not widened.
// CHECK-LABEL: func.func @bounds
func.func @bounds(%x : tensor<3xi32>, %y : tensor<3xi32>) -> (tensor<3xi32>, tensor<3xi32>) {
  // CHECK-NEXT: %c.constant = logical.constant dense<-1> {{.*}} : tensor<3xi32>
  // CHECK-NEXT: %c.max = logical.max %x, %c.constant
  // CHECK-NEXT: %c.constant_1 = logical.constant dense<1>
  // CHECK-NEXT: %c.min = logical.min %c.max, %c.constant_1
  %0 = logical.clamp %x {min = -1, max = 1, aicf.id = "c", aicf.src = ["c"]} : tensor<3xi32>
  // What the truncated quotient leaves, and the divisor if that has the other sign.
  // CHECK-NEXT: %m.div = logical.div %c.min, %y
  // CHECK-NEXT: %m.mul = logical.mul %m.div, %y
  // CHECK-NEXT: %m.sub = logical.sub %c.min, %m.mul
  // CHECK: %m.signs_differ = logical.compare "lt"
  // CHECK: %m.add = logical.add %m.sub, %y
  // CHECK-NEXT: %m.select = logical.select %m.and_1, %m.add, %m.sub
  %1 = logical.mod %0, %y {aicf.id = "m", aicf.src = ["m"]} : tensor<3xi32>
  func.return %0, %1 : tensor<3xi32>, tensor<3xi32>
}

// Gradients are written: what was a constant to them is its operand, also as a result.
// CHECK-LABEL: func.func @detached
func.func @detached(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NEXT: %y = logical.exp %x
  %0 = logical.detach %x {aicf.id = "still", aicf.src = ["still"]} : tensor<4xf32>
  %y = logical.exp %0 {aicf.id = "y", aicf.src = ["y"]} : tensor<4xf32>
  // CHECK-NEXT: func.return %x, %y
  func.return %0, %y : tensor<4xf32>, tensor<4xf32>
}
