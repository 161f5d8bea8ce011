// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"fusion\": {\"elementwise\": false}}"},fuse-elementwise' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"neg\"]]}"},fuse-elementwise' | filecheck %s --check-prefix=PINNED

// A chain of pointwise ops is one kernel; the constant is cloned in.
// CHECK: emit.decision "fuse-elementwise" ["exp", "neg", "half"] choice "one kernel for 3 ops" because "intermediates stay in registers or a row of cache instead of memory"
// CHECK: emit.decision "fuse-elementwise" ["rows"] choice "alone" because "no kernel of the target runs it fused with its consumers" rejected {"rows + all" = "cpu.generated: {{.*}} (reductions over different axes)"}
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %y = emit.group "exp" from ["exp", "neg", "half"] ins(%x_1 = %x : tensor<4x8xf32>) -> (tensor<4x8xf32>) {
// CHECK-NEXT:   logical.exp %x_1
// CHECK-NEXT:   logical.neg
// CHECK-NEXT:   logical.constant
// CHECK-NEXT:   logical.mul
// CHECK-NEXT:   emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %y
// OFF-LABEL: func.func @chain
// OFF: emit.group "exp" from ["exp"]
// OFF: emit.group "neg" from ["neg"]
// OFF: emit.group "half" from ["half"]
// PINNED-LABEL: func.func @chain
// PINNED: emit.group "exp" from ["exp"]
// PINNED: emit.group "neg" from ["neg"]
// PINNED: emit.group "half" from ["half"]
func.func @chain(%x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4x8xf32> {logical.name = "y"}) {
  %c = logical.constant dense<0.5> {aicf.id = "c", aicf.src = ["half"]} : tensor<4x8xf32>
  %e = logical.exp %x {aicf.id = "exp", aicf.src = ["exp"]} : tensor<4x8xf32>
  %n = logical.neg %e {aicf.id = "neg", aicf.src = ["neg"]} : tensor<4x8xf32>
  %y = logical.mul %n, %c {aicf.id = "half", aicf.src = ["half"]} : tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// A softmax written in primitive ops, with a scaling in front and a clipping after: one kernel.
// CHECK-LABEL: func.func @softmax
// CHECK-NEXT: %y = emit.group "scale" from ["scale", "sm", "clip"] ins(%x_1 = %x : tensor<4x10xf32>, %t_1 = %t : tensor<4x10xf32>) -> (tensor<4x10xf32>) {
// CHECK: logical.reduce_max
// CHECK: logical.reduce_sum
// CHECK: emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %y
func.func @softmax(
    %x : tensor<4x10xf32> {logical.name = "x", logical.role = "input"},
    %t : tensor<4x10xf32> {logical.name = "t", logical.role = "input"}) -> (tensor<4x10xf32> {logical.name = "y"}) {
  %s = logical.mul %x, %t {aicf.id = "scale", aicf.src = ["scale"]} : tensor<4x10xf32>
  %m = logical.reduce_max %s {axes = [1], keepdims, aicf.id = "sm.max", aicf.src = ["sm"]} : tensor<4x10xf32> -> tensor<4x1xf32>
  %mb = logical.broadcast %m {dimensions = [0, 1], aicf.id = "sm.mb", aicf.src = ["sm"]} : tensor<4x1xf32> -> tensor<4x10xf32>
  %d = logical.sub %s, %mb {aicf.id = "sm.sub", aicf.src = ["sm"]} : tensor<4x10xf32>
  %e = logical.exp %d {aicf.id = "sm.exp", aicf.src = ["sm"]} : tensor<4x10xf32>
  %u = logical.reduce_sum %e {axes = [1], keepdims, aicf.id = "sm.sum", aicf.src = ["sm"]} : tensor<4x10xf32> -> tensor<4x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1], aicf.id = "sm.ub", aicf.src = ["sm"]} : tensor<4x1xf32> -> tensor<4x10xf32>
  %q = logical.div %e, %ub {aicf.id = "sm", aicf.src = ["sm"]} : tensor<4x10xf32>
  %y = logical.min %q, %t {aicf.id = "clip", aicf.src = ["clip"]} : tensor<4x10xf32>
  func.return %y : tensor<4x10xf32>
}

// Reductions over different axes need two sweeps that no generated kernel has: two groups, and the refusal is recorded.
// CHECK-LABEL: func.func @axes
// CHECK: emit.group "rows"
// CHECK: emit.group "all"
func.func @axes(%x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<f32> {logical.name = "y"}) {
  %r = logical.reduce_sum %x {axes = [1], aicf.id = "rows", aicf.src = ["rows"]} : tensor<4x8xf32> -> tensor<4xf32>
  %s = logical.reduce_max %r {axes = [0], aicf.id = "all", aicf.src = ["all"]} : tensor<4xf32> -> tensor<f32>
  func.return %s : tensor<f32>
}

// A value that someone else reads ends a group: one result a group.
// CHECK-LABEL: func.func @two_results
// CHECK: emit.group "e"
// CHECK: emit.group "n"
func.func @two_results(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<4xf32> {logical.name = "a"}, tensor<4xf32> {logical.name = "b"}) {
  %e = logical.exp %x {aicf.id = "e", aicf.src = ["e"]} : tensor<4xf32>
  %n = logical.neg %e {aicf.id = "n", aicf.src = ["n"]} : tensor<4xf32>
  func.return %e, %n : tensor<4xf32>, tensor<4xf32>
}

// Views that feed a group are cloned into it: nothing of them is left outside.
// CHECK-LABEL: func.func @views
// CHECK-NEXT: emit.group "va" from ["va"] ins(%x_1 = %x : tensor<4x6xf32>) -> (tensor<6x4xf32>) {
// CHECK-NEXT:   logical.transpose
// CHECK-NEXT:   logical.exp
func.func @views(%x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<6x4xf32> {logical.name = "y"}) {
  %t = logical.transpose %x {permutation = [1, 0], aicf.id = "vt", aicf.src = ["vt"]} : tensor<4x6xf32> -> tensor<6x4xf32>
  %e = logical.exp %t {aicf.id = "va", aicf.src = ["va"]} : tensor<6x4xf32>
  func.return %e : tensor<6x4xf32>
}

// What no kernel fuses still becomes a group, of one.
// CHECK-LABEL: func.func @concat
// CHECK: emit.group "cat" from ["cat"]
func.func @concat(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4x3xf32> {logical.name = "y"}) {
  %c = logical.concat %x, %x {axis = 0, aicf.id = "cat", aicf.src = ["cat"]} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  func.return %c : tensor<4x3xf32>
}

// A residual and the norm after it are one kernel where nothing else reads the sum; what is computed of the scale, and
// read through a broadcast, joins.
// CHECK-LABEL: func.func @residual_norm
// CHECK: %y = emit.group "sum" from ["sum", "ln"] ins(%{{.*}} = %x : tensor<4x8xf32>, %{{.*}} = %r : tensor<4x8xf32>, %{{.*}} = %w : tensor<8xf32>)
// CHECK-NEXT:   logical.add
// CHECK-NEXT:   logical.tanh
// CHECK: emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %y
func.func @residual_norm(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %r : tensor<4x8xf32> {logical.name = "r", logical.role = "input"},
    %w : tensor<8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}) {
  %h = logical.add %x, %r {aicf.id = "sum", aicf.src = ["sum"]} : tensor<4x8xf32>
  %ww = logical.tanh %w {aicf.id = "ln.w", aicf.src = ["ln"]} : tensor<8xf32>
  %q = logical.mul %h, %h {aicf.id = "ln.square", aicf.src = ["ln"]} : tensor<4x8xf32>
  %s = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "ln.sum", aicf.src = ["ln"]} : tensor<4x8xf32> -> tensor<4x1xf32>
  %i = logical.rsqrt %s {aicf.id = "ln.rsqrt", aicf.src = ["ln"]} : tensor<4x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "ln.rb", aicf.src = ["ln"]} : tensor<4x1xf32> -> tensor<4x8xf32>
  %n = logical.mul %h, %ib {aicf.id = "ln.scaled", aicf.src = ["ln"]} : tensor<4x8xf32>
  %wb = logical.broadcast %ww {dimensions = [1], aicf.id = "ln.wb", aicf.src = ["ln"]} : tensor<8xf32> -> tensor<4x8xf32>
  %y = logical.mul %n, %wb {aicf.id = "ln", aicf.src = ["ln"]} : tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
