// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-attention' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"attention\": false}}"},fuse-attention' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-attention' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-attention,materialize-views,fuse-elementwise,select-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "fuse-attention" ["heads", "heads.scale", "heads.mask", "sm.max", "sm.mb", "sm.sub", "sm.exp", "sm.sum", "sm.ub", "sm", "heads.out", "heads.rows", "heads.flat"] choice "one kernel for 13 ops" because "scores and probabilities stay on chip, and no head is moved"
// CHECK-NEXT: emit.decision "fuse-attention" ["plain"{{.*}}"plain.out"] choice "one kernel for 9 ops"
// CHECK-NEXT: emit.decision "fuse-attention" ["half"{{.*}}"half.out"] choice "one kernel for 11 ops"
// CHECK-NEXT: emit.decision "fuse-attention" ["read.out", "read"] choice "not fused" because "'read.abs' reads what is computed between the products, so it has to be written to memory in any case"
// CHECK-NEXT: emit.decision "fuse-attention" ["given.out", "given"] choice "not fused" because "the program returns what is computed between the products, so it has to be written to memory in any case"
// CHECK-NEXT: }

// OFF: emit.decision "fuse-attention" ["heads.out", "heads"] choice "not fused" because "attention fusion is off by policy (fusion.attention)"
// OFF-LABEL: func.func @heads
// OFF-NOT: emit.group
// Few queries are predicted to pay for the packing of keys and values.
// CPU: emit.decision "fuse-attention" ["heads.out", "heads"] choice "not fused" because "fusing them is illegal or not predicted to be faster on this target" rejected {"heads.out + heads.rows + heads.flat" = "predicted 0.883 us fused and 0.871 us unfused; {{.*}}"
// CPU-NEXT: emit.decision "fuse-attention" ["plain.out", "plain"] choice "not fused"{{.*}} rejected {plain.out = "predicted 0.144 us fused and 0.143 us unfused; {{.*}}"}
// CPU-NEXT: emit.decision "fuse-attention" ["half"{{.*}}"half.out"] choice "one kernel for 11 ops"
// CPU-LABEL: func.func @heads
// CPU-NOT: emit.group
// CPU-LABEL: func.func @half
// CPU: emit.group "half"

// Scale and mask are of the kernel; reshapes and transposes in front are cloned in, those after are members. Keys that
// were transposed to columns are turned back: kernels read them by rows.
// CHECK-LABEL: func.func @heads
// CHECK: %[[O:.*]] = emit.group "heads" from ["heads", "sm"] ins({{.*}}) -> (tensor<2x5x12xf32>) {
// CHECK: %[[K:.*]] = logical.transpose %{{.*}} {permutation = [0, 1, 3, 2]} : tensor<2x3x4x7xf32> -> tensor<2x3x7x4xf32>
// CHECK-NEXT: logical.matmul %{{.*}}, %[[K]] {transpose_b, aicf.id = "heads"
// CHECK: logical.matmul
// CHECK-NEXT: logical.transpose
// CHECK-NEXT: logical.reshape
// CHECK-NEXT: emit.yield
// CHECK: func.return %[[O]]
// The kernel sees [batch, heads, rows, depth] everywhere, strides instead of copies, and the mask along all of it.
// EMIT-LABEL: emit.program @heads
// EMIT: emit.view %mask offset(0) : !emit.buffer<2x7xf32, bound> to !emit.buffer<2x3x5x7xf32, bound, strides [7, 0, 0, 1]>
// EMIT: %[[Y:.*]] = emit.view %y offset(0) : !emit.buffer<2x5x12xf32, bound> to !emit.buffer<2x3x5x4xf32, bound, strides [60, 4, 12, 1]>
// EMIT: emit.resolved "attention" id(29) name("heads") src(["heads", "sm"])
// EMIT-NEXT: ins(%{{.*}} : !emit.buffer<2x3x5x4xf32, bound, strides [60, 4, 12, 1]>, !emit.buffer<2x3x7x4xf32, bound, strides [84, 4, 12, 1]>, !emit.buffer<2x3x7x4xf32, bound, strides [84, 4, 12, 1]>, !emit.buffer<2x3x5x7xf32, bound, strides [7, 0, 0, 1]>) outs(%[[Y]]
// EMIT-NEXT: attrs {scale = 5.000000e-01 : f64, mask = true, causal = false, past = 0 : i64, nan_as_zero = false, empty_as_zero = false} schema("attention.v4")
// EMIT-NOT: emit.resolved
func.func @heads(
    %q : tensor<2x5x12xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x7x12xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x7x12xf32> {logical.name = "v", logical.role = "input"},
    %mask : tensor<2x7xf32> {logical.name = "mask", logical.role = "input"}) -> (tensor<2x5x12xf32> {logical.name = "y"}) {
  %q4 = logical.reshape %q {aicf.id = "q4", aicf.src = ["q4"]} : tensor<2x5x12xf32> -> tensor<2x5x3x4xf32>
  %k4 = logical.reshape %k {aicf.id = "k4", aicf.src = ["k4"]} : tensor<2x7x12xf32> -> tensor<2x7x3x4xf32>
  %v4 = logical.reshape %v {aicf.id = "v4", aicf.src = ["v4"]} : tensor<2x7x12xf32> -> tensor<2x7x3x4xf32>
  %qh = logical.transpose %q4 {permutation = [0, 2, 1, 3], aicf.id = "qh", aicf.src = ["qh"]} : tensor<2x5x3x4xf32> -> tensor<2x3x5x4xf32>
  %kh = logical.transpose %k4 {permutation = [0, 2, 3, 1], aicf.id = "kh", aicf.src = ["kh"]} : tensor<2x7x3x4xf32> -> tensor<2x3x4x7xf32>
  %vh = logical.transpose %v4 {permutation = [0, 2, 1, 3], aicf.id = "vh", aicf.src = ["vh"]} : tensor<2x7x3x4xf32> -> tensor<2x3x7x4xf32>
  %s = logical.matmul %qh, %kh {aicf.id = "heads", aicf.src = ["heads"]} : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %two = logical.constant dense<2.0> {aicf.id = "two", aicf.src = ["heads"]} : tensor<2x3x5x7xf32>
  %t = logical.div %s, %two {aicf.id = "heads.scale", aicf.src = ["heads"]} : tensor<2x3x5x7xf32>
  %mb = logical.broadcast %mask {dimensions = [0, 3], aicf.id = "mb", aicf.src = ["heads"]} : tensor<2x7xf32> -> tensor<2x3x5x7xf32>
  %x = logical.add %mb, %t {aicf.id = "heads.mask", aicf.src = ["heads"]} : tensor<2x3x5x7xf32>
  %m = logical.reduce_max %x {axes = [3], keepdims, aicf.id = "sm.max", aicf.src = ["sm"]} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3], aicf.id = "sm.mb", aicf.src = ["sm"]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %x, %n {aicf.id = "sm.sub", aicf.src = ["sm"]} : tensor<2x3x5x7xf32>
  %e = logical.exp %d {aicf.id = "sm.exp", aicf.src = ["sm"]} : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims, aicf.id = "sm.sum", aicf.src = ["sm"]} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3], aicf.id = "sm.ub", aicf.src = ["sm"]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub {aicf.id = "sm", aicf.src = ["sm"]} : tensor<2x3x5x7xf32>
  %o = logical.matmul %p, %vh {aicf.id = "heads.out", aicf.src = ["heads"]} : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  %r = logical.transpose %o {permutation = [0, 2, 1, 3], aicf.id = "heads.rows", aicf.src = ["heads"]} : tensor<2x3x5x4xf32> -> tensor<2x5x3x4xf32>
  %y = logical.reshape %r {aicf.id = "heads.flat", aicf.src = ["heads"]} : tensor<2x5x3x4xf32> -> tensor<2x5x12xf32>
  func.return %y : tensor<2x5x12xf32>
}

// Neither scale nor mask: a factor of one.
// CHECK-LABEL: func.func @plain
// CHECK: emit.group "plain"
// EMIT-LABEL: emit.program @plain
// EMIT: emit.resolved "attention"
// EMIT: attrs {scale = 1.000000e+00 : f64, mask = false, causal = false, past = 0 : i64, nan_as_zero = false, empty_as_zero = false}
func.func @plain(
    %q : tensor<5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<7x4xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<7x6xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<5x6xf32> {logical.name = "y"}) {
  %x = logical.matmul %q, %k {transpose_b, aicf.id = "plain", aicf.src = ["plain"]} : (tensor<5x4xf32>, tensor<7x4xf32>) -> tensor<5x7xf32>
  %m = logical.reduce_max %x {axes = [1], aicf.id = "ps.max", aicf.src = ["ps"]} : tensor<5x7xf32> -> tensor<5xf32>
  %n = logical.broadcast %m {dimensions = [0], aicf.id = "ps.mb", aicf.src = ["ps"]} : tensor<5xf32> -> tensor<5x7xf32>
  %d = logical.sub %x, %n {aicf.id = "ps.sub", aicf.src = ["ps"]} : tensor<5x7xf32>
  %e = logical.exp %d {aicf.id = "ps.exp", aicf.src = ["ps"]} : tensor<5x7xf32>
  %u = logical.reduce_sum %e {axes = [1], aicf.id = "ps.sum", aicf.src = ["ps"]} : tensor<5x7xf32> -> tensor<5xf32>
  %ub = logical.broadcast %u {dimensions = [0], aicf.id = "ps.ub", aicf.src = ["ps"]} : tensor<5xf32> -> tensor<5x7xf32>
  %p = logical.div %e, %ub {aicf.id = "ps", aicf.src = ["ps"]} : tensor<5x7xf32>
  %y = logical.matmul %p, %v {aicf.id = "plain.out", aicf.src = ["plain"]} : (tensor<5x7xf32>, tensor<7x6xf32>) -> tensor<5x6xf32>
  func.return %y : tensor<5x6xf32>
}

// Half precision: the softmax is computed in f32, and the casts are part of the group.
// CHECK-LABEL: func.func @half
// CHECK: emit.group "half"
// CHECK-NEXT: logical.matmul
// CHECK-NEXT: logical.cast {{.*}} : tensor<5x7xf16> -> tensor<5x7xf32>
// CHECK: logical.cast {{.*}} : tensor<5x7xf32> -> tensor<5x7xf16>
// CHECK-NEXT: logical.matmul
func.func @half(
    %q : tensor<5x4xf16> {logical.name = "q", logical.role = "input"},
    %k : tensor<7x4xf16> {logical.name = "k", logical.role = "input"},
    %v : tensor<7x6xf16> {logical.name = "v", logical.role = "input"}) -> (tensor<5x6xf16> {logical.name = "y"}) {
  %s = logical.matmul %q, %k {transpose_b, aicf.id = "half", aicf.src = ["half"]} : (tensor<5x4xf16>, tensor<7x4xf16>) -> tensor<5x7xf16>
  %x = logical.cast %s {aicf.id = "hs.widen", aicf.src = ["hs"]} : tensor<5x7xf16> -> tensor<5x7xf32>
  %m = logical.reduce_max %x {axes = [1], aicf.id = "hs.max", aicf.src = ["hs"]} : tensor<5x7xf32> -> tensor<5xf32>
  %n = logical.broadcast %m {dimensions = [0], aicf.id = "hs.mb", aicf.src = ["hs"]} : tensor<5xf32> -> tensor<5x7xf32>
  %d = logical.sub %x, %n {aicf.id = "hs.sub", aicf.src = ["hs"]} : tensor<5x7xf32>
  %e = logical.exp %d {aicf.id = "hs.exp", aicf.src = ["hs"]} : tensor<5x7xf32>
  %u = logical.reduce_sum %e {axes = [1], aicf.id = "hs.sum", aicf.src = ["hs"]} : tensor<5x7xf32> -> tensor<5xf32>
  %ub = logical.broadcast %u {dimensions = [0], aicf.id = "hs.ub", aicf.src = ["hs"]} : tensor<5xf32> -> tensor<5x7xf32>
  %w = logical.div %e, %ub {aicf.id = "hs", aicf.src = ["hs"]} : tensor<5x7xf32>
  %p = logical.cast %w {aicf.id = "hs.narrow", aicf.src = ["hs"]} : tensor<5x7xf32> -> tensor<5x7xf16>
  %y = logical.matmul %p, %v {aicf.id = "half.out", aicf.src = ["half"]} : (tensor<5x7xf16>, tensor<7x6xf16>) -> tensor<5x6xf16>
  func.return %y : tensor<5x6xf16>
}

// Probabilities that are read elsewhere are written in any case.
// CHECK-LABEL: func.func @read
// CHECK-NOT: emit.group
func.func @read(
    %q : tensor<5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<7x4xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<7x6xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<5x6xf32> {logical.name = "y"}, tensor<5x7xf32> {logical.name = "z"}) {
  %x = logical.matmul %q, %k {transpose_b, aicf.id = "read", aicf.src = ["read"]} : (tensor<5x4xf32>, tensor<7x4xf32>) -> tensor<5x7xf32>
  %m = logical.reduce_max %x {axes = [1], aicf.id = "rs.max", aicf.src = ["rs"]} : tensor<5x7xf32> -> tensor<5xf32>
  %n = logical.broadcast %m {dimensions = [0], aicf.id = "rs.mb", aicf.src = ["rs"]} : tensor<5xf32> -> tensor<5x7xf32>
  %d = logical.sub %x, %n {aicf.id = "rs.sub", aicf.src = ["rs"]} : tensor<5x7xf32>
  %e = logical.exp %d {aicf.id = "rs.exp", aicf.src = ["rs"]} : tensor<5x7xf32>
  %u = logical.reduce_sum %e {axes = [1], aicf.id = "rs.sum", aicf.src = ["rs"]} : tensor<5x7xf32> -> tensor<5xf32>
  %ub = logical.broadcast %u {dimensions = [0], aicf.id = "rs.ub", aicf.src = ["rs"]} : tensor<5xf32> -> tensor<5x7xf32>
  %p = logical.div %e, %ub {aicf.id = "rs", aicf.src = ["rs"]} : tensor<5x7xf32>
  %z = logical.neg %p {aicf.id = "read.abs", aicf.src = ["read.abs"]} : tensor<5x7xf32>
  %y = logical.matmul %p, %v {aicf.id = "read.out", aicf.src = ["read"]} : (tensor<5x7xf32>, tensor<7x6xf32>) -> tensor<5x6xf32>
  func.return %y, %z : tensor<5x6xf32>, tensor<5x7xf32>
}

// So are probabilities that the program gives.
// CHECK-LABEL: func.func @given
// CHECK-NOT: emit.group
func.func @given(
    %q : tensor<5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<7x4xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<7x6xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<5x6xf32> {logical.name = "y"}, tensor<5x7xf32> {logical.name = "z"}) {
  %x = logical.matmul %q, %k {transpose_b, aicf.id = "given", aicf.src = ["given"]} : (tensor<5x4xf32>, tensor<7x4xf32>) -> tensor<5x7xf32>
  %m = logical.reduce_max %x {axes = [1], aicf.id = "gs.max", aicf.src = ["gs"]} : tensor<5x7xf32> -> tensor<5xf32>
  %n = logical.broadcast %m {dimensions = [0], aicf.id = "gs.mb", aicf.src = ["gs"]} : tensor<5xf32> -> tensor<5x7xf32>
  %d = logical.sub %x, %n {aicf.id = "gs.sub", aicf.src = ["gs"]} : tensor<5x7xf32>
  %e = logical.exp %d {aicf.id = "gs.exp", aicf.src = ["gs"]} : tensor<5x7xf32>
  %u = logical.reduce_sum %e {axes = [1], aicf.id = "gs.sum", aicf.src = ["gs"]} : tensor<5x7xf32> -> tensor<5xf32>
  %ub = logical.broadcast %u {dimensions = [0], aicf.id = "gs.ub", aicf.src = ["gs"]} : tensor<5xf32> -> tensor<5x7xf32>
  %p = logical.div %e, %ub {aicf.id = "gs", aicf.src = ["gs"]} : tensor<5x7xf32>
  %y = logical.matmul %p, %v {aicf.id = "given.out", aicf.src = ["given"]} : (tensor<5x7xf32>, tensor<7x6xf32>) -> tensor<5x6xf32>
  func.return %y, %p : tensor<5x6xf32>, tensor<5x7xf32>
}

// A softmax over another dim is no attention; nothing is said about it.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: emit.group
func.func @columns(
    %q : tensor<5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<5x4xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<5x6xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<5x6xf32> {logical.name = "y"}) {
  %x = logical.matmul %q, %k {transpose_b, aicf.id = "columns", aicf.src = ["columns"]} : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x5xf32>
  %m = logical.reduce_max %x {axes = [0], aicf.id = "cs.max", aicf.src = ["cs"]} : tensor<5x5xf32> -> tensor<5xf32>
  %n = logical.broadcast %m {dimensions = [1], aicf.id = "cs.mb", aicf.src = ["cs"]} : tensor<5xf32> -> tensor<5x5xf32>
  %d = logical.sub %x, %n {aicf.id = "cs.sub", aicf.src = ["cs"]} : tensor<5x5xf32>
  %e = logical.exp %d {aicf.id = "cs.exp", aicf.src = ["cs"]} : tensor<5x5xf32>
  %u = logical.reduce_sum %e {axes = [0], aicf.id = "cs.sum", aicf.src = ["cs"]} : tensor<5x5xf32> -> tensor<5xf32>
  %ub = logical.broadcast %u {dimensions = [1], aicf.id = "cs.ub", aicf.src = ["cs"]} : tensor<5xf32> -> tensor<5x5xf32>
  %p = logical.div %e, %ub {aicf.id = "cs", aicf.src = ["cs"]} : tensor<5x5xf32>
  %y = logical.matmul %p, %v {aicf.id = "columns.out", aicf.src = ["columns"]} : (tensor<5x5xf32>, tensor<5x6xf32>) -> tensor<5x6xf32>
  func.return %y : tensor<5x6xf32>
}
