// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-prologues' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"prologue\": false}}"},fuse-prologues' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-prologues' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-prologues,fuse-elementwise,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "fuse-prologues" ["fc", "n.widen", "n.w", "n.square", "n.sum", "n.rsqrt", "n.rb", "n.scaled", "n.wb", "n.weighted", "n", "fc.bias", "fc.residual"] choice "one kernel for 13 ops" because "its rows are computed where the product reads them, and never written"
// CHECK-NEXT: emit.decision "fuse-prologues" ["a"{{.*}}] choice "one kernel for 6 ops"
// CHECK-NEXT: emit.decision "fuse-prologues" ["b", "s.exp.b", "s.sum.b", "s.rb.b", "s.b"{{.*}}] choice "one kernel for 5 ops"
// CHECK-NEXT: emit.decision "fuse-prologues" ["t", {{.*}}] choice "not fused" because "'t.read' reads the rows too, so they have to be written to memory in any case"
// CHECK-NEXT: }
// OFF: emit.decision "fuse-prologues" ["n", {{.*}}] choice "not fused" because "prologue fusion is off by policy (fusion.prologue)"
// Rows are not computed twice on a CPU.
// CPU: emit.decision "fuse-prologues" ["fc", {{.*}}] choice "one kernel for 13 ops"
// CPU-NEXT: emit.decision "fuse-prologues" ["s", {{.*}}] choice "not fused"{{.*}} rejected {"s + a + a.act" = "each of 2 products would compute the rows again"

// A norm of half precision: casts, also that of its scale, are of the row program; bias and residual stay behind the
// product. The residual is x again, an operand of its own.
// CHECK-LABEL: func.func @norm
// CHECK: emit.group "fc" from ["n", "fc"]
// CHECK: func.return
// OFF-LABEL: func.func @norm
// OFF-NOT: emit.group
// EMIT: emit.kernel @fc.prologue parallel [4] reduce [8]
// EMIT-NEXT: ^bb0(%x: f16, %w: f16):
// EMIT: emit.kernel @fc.code parallel [4, 8] reduce []
// EMIT-NEXT: ^bb0(%m: f16, %b: f16, %x: f16):
// EMIT: emit.resolved "norm_gemm" id(28) name("fc") src(["n", "fc"])
// EMIT-NEXT: ins(%x, %g, %w, %b, %x : {{.*}}) outs(%y
// EMIT-NEXT: attrs {transpose_a = false, transpose_b = false, prologue_operands = 1 : i64} schema("norm_gemm.v1") blob("0x00000100000000000000")
// EMIT-NEXT: body(@fc.body) code(@fc.code) prologue(@fc.prologue)
func.func @norm(
    %x : tensor<4x8xf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<8xf16> {logical.name = "w", logical.role = "param"},
    %g : tensor<8x8xf16> {logical.name = "g", logical.role = "param"},
    %b : tensor<8xf16> {logical.name = "b", logical.role = "param"}) -> (tensor<4x8xf16> {logical.name = "y"}) {
  %xw = logical.cast %x {aicf.id = "n.widen", aicf.src = ["n"]} : tensor<4x8xf16> -> tensor<4x8xf32>
  %ww = logical.cast %w {aicf.id = "n.w", aicf.src = ["n"]} : tensor<8xf16> -> tensor<8xf32>
  %q = logical.mul %xw, %xw {aicf.id = "n.square", aicf.src = ["n"]} : tensor<4x8xf32>
  %r = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "n.sum", aicf.src = ["n"]} : tensor<4x8xf32> -> tensor<4x1xf32>
  %i = logical.rsqrt %r {aicf.id = "n.rsqrt", aicf.src = ["n"]} : tensor<4x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "n.rb", aicf.src = ["n"]} : tensor<4x1xf32> -> tensor<4x8xf32>
  %z = logical.mul %xw, %ib {aicf.id = "n.scaled", aicf.src = ["n"]} : tensor<4x8xf32>
  %wb = logical.broadcast %ww {dimensions = [1], aicf.id = "n.wb", aicf.src = ["n"]} : tensor<8xf32> -> tensor<4x8xf32>
  %v = logical.mul %z, %wb {aicf.id = "n.weighted", aicf.src = ["n"]} : tensor<4x8xf32>
  %h = logical.cast %v {aicf.id = "n", aicf.src = ["n"]} : tensor<4x8xf32> -> tensor<4x8xf16>
  %m = logical.matmul %h, %g {aicf.id = "fc", aicf.src = ["fc"]} : (tensor<4x8xf16>, tensor<8x8xf16>) -> tensor<4x8xf16>
  %bb = logical.broadcast %b {dimensions = [1], aicf.id = "fc.bb", aicf.src = ["fc"]} : tensor<8xf16> -> tensor<4x8xf16>
  %mb = logical.add %m, %bb {aicf.id = "fc.bias", aicf.src = ["fc"]} : tensor<4x8xf16>
  %y = logical.add %mb, %x {aicf.id = "fc.residual", aicf.src = ["fc"]} : tensor<4x8xf16>
  func.return %y : tensor<4x8xf16>
}

// Two products that read the same rows take a copy of the row program each, here a softmax without its maximum.
// CHECK-LABEL: func.func @shared
// CHECK: emit.group "a"
// CHECK: emit.group "b"
// CHECK: logical.exp %{{.*}} {aicf.id = "s.exp.b", aicf.src = ["s"]}
func.func @shared(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %g : tensor<8x6xf32> {logical.name = "g", logical.role = "param"},
    %u : tensor<8x5xf32> {logical.name = "u", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "ya"}, tensor<4x5xf32> {logical.name = "yb"}) {
  %e = logical.exp %x {aicf.id = "s.exp", aicf.src = ["s"]} : tensor<4x8xf32>
  %r = logical.reduce_sum %e {axes = [1], keepdims, aicf.id = "s.sum", aicf.src = ["s"]} : tensor<4x8xf32> -> tensor<4x1xf32>
  %rb = logical.broadcast %r {dimensions = [0, 1], aicf.id = "s.rb", aicf.src = ["s"]} : tensor<4x1xf32> -> tensor<4x8xf32>
  %p = logical.div %e, %rb {aicf.id = "s", aicf.src = ["s"]} : tensor<4x8xf32>
  %m = logical.matmul %p, %g {aicf.id = "a", aicf.src = ["a"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %a = logical.relu %m {aicf.id = "a.act", aicf.src = ["a"]} : tensor<4x6xf32>
  %n = logical.matmul %p, %u {aicf.id = "b", aicf.src = ["b"]} : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  func.return %a, %n : tensor<4x6xf32>, tensor<4x5xf32>
}

// Rows that something else reads are written in any case.
// CHECK-LABEL: func.func @read
// CHECK-NOT: emit.group
func.func @read(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %g : tensor<8x6xf32> {logical.name = "g", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "y"}, tensor<4x8xf32> {logical.name = "z"}) {
  %r = logical.reduce_max %x {axes = [1], aicf.id = "t.max", aicf.src = ["t"]} : tensor<4x8xf32> -> tensor<4xf32>
  %rb = logical.broadcast %r {dimensions = [0], aicf.id = "t.rb", aicf.src = ["t"]} : tensor<4xf32> -> tensor<4x8xf32>
  %p = logical.div %x, %rb {aicf.id = "t", aicf.src = ["t"]} : tensor<4x8xf32>
  %m = logical.matmul %p, %g {aicf.id = "t.product", aicf.src = ["t.product"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %z = logical.neg %p {aicf.id = "t.read", aicf.src = ["t.read"]} : tensor<4x8xf32>
  func.return %m, %z : tensor<4x6xf32>, tensor<4x8xf32>
}

// Neither pointwise ops alone nor a reduction over another dim make rows; nothing is said about them.
// CHECK-LABEL: func.func @no_rows
// CHECK-NOT: emit.group
func.func @no_rows(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %g : tensor<8x6xf32> {logical.name = "g", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "y"}, tensor<4x6xf32> {logical.name = "z"}) {
  %p = logical.tanh %x {aicf.id = "c.tanh", aicf.src = ["c.tanh"]} : tensor<4x8xf32>
  %m = logical.matmul %p, %g {aicf.id = "c", aicf.src = ["c"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %r = logical.reduce_sum %x {axes = [0], aicf.id = "d.sum", aicf.src = ["d.sum"]} : tensor<4x8xf32> -> tensor<8xf32>
  %rb = logical.broadcast %r {dimensions = [1], aicf.id = "d.rb", aicf.src = ["d.sum"]} : tensor<8xf32> -> tensor<4x8xf32>
  %q = logical.sub %x, %rb {aicf.id = "d.sub", aicf.src = ["d.sum"]} : tensor<4x8xf32>
  %n = logical.matmul %q, %g {aicf.id = "d", aicf.src = ["d"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  func.return %m, %n : tensor<4x6xf32>, tensor<4x6xf32>
}
