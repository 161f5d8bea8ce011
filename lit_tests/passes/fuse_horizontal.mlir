// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-horizontal' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"horizontal\": false}}"},fuse-horizontal' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"groups\": [[\"k\"]]}"},fuse-horizontal' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-horizontal' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-horizontal,fuse-elementwise,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "fuse-horizontal" ["q", "q.bias", "k", "k.bias", "v", "v.bias"] choice "one kernel for 3 products, 6 ops" because "the left operand is read once, and one launch fills the machine"
// CHECK-NEXT: emit.decision "fuse-horizontal" ["a", "b"] choice "one kernel for 2 products, 2 ops"{{.*}} rejected {"a + a.act + b + b.act" = "'a.act' (relu) and 'b.act' (tanh) differ: products side by side have the same ops after them (gemm_multi has no code for it)"}
// CHECK-NEXT: emit.decision "fuse-horizontal" ["chain", "next"] choice "not fused" because "fusing them is illegal or not predicted to be faster on this target" rejected {"chain + next" = "one of them reads the result of another, directly or through other ops"}
// CHECK: emit.decision "fuse-horizontal" ["early", "later"] choice "not fused" because "'meanwhile', a product between them, follows from the first: the second one's result would be kept in memory while it runs; {{.*}}"
// OFF: emit.decision "fuse-horizontal" ["q", "k", "v"] choice "not fused" because "horizontal fusion is off by policy (fusion.horizontal)"
// PINNED: emit.decision "fuse-horizontal" ["q", "q.bias", "v", "v.bias"] choice "one kernel for 2 products, 4 ops"
// On a CPU a product's own activation is worth more than a left operand that is read once.
// CPU: emit.decision "fuse-horizontal" ["q", "q.bias", "k", "k.bias", "v", "v.bias"] choice "one kernel for 3 products, 6 ops"
// CPU-NEXT: emit.decision "fuse-horizontal" ["a", "b"] choice "not fused" because "fusing them is illegal or not predicted to be faster on this target" rejected {"a + a.act + b + b.act" = "'a.act' (relu) and 'b.act' (tanh) differ: products side by side have the same ops after them (gemm_multi has no code for it)", "a + b" = "it leaves out 'a.act', which is fused with the product alone"}

// Three products with a bias each: three results. What reads a result moves after the group.
// CHECK-LABEL: func.func @qkv
// CHECK: %{{.*}}, %{{.*}}, %{{.*}} = emit.group "q" from ["q", "k", "v"]
// CHECK: emit.yield %{{.*}}, %{{.*}}, %{{.*}} : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
// CHECK-NEXT: }
// CHECK-NEXT: logical.reshape
// CHECK-NEXT: logical.exp
// OFF-LABEL: func.func @qkv
// OFF-NOT: emit.group
// One program for all: the accumulator, and then the bias that the product has of its own.
// EMIT: emit.kernel @q.code parallel [4, 6] reduce []
// EMIT-NEXT: ^bb0(%q: f32, %b: f32):
// EMIT: emit.resolved "gemm_multi" id(30) name("q") src(["q", "k", "v"])
// EMIT-NEXT: ins(%x, %wq, %wk, %wv, %b, %b, %c : {{.*}}) outs(%{{.*}}, %{{.*}}, %{{.*}} :
// EMIT-NEXT: attrs {transpose_a = false, transpose_b = false, products = 3 : i64} schema("gemm_multi.v1") blob("0x00000300000000000000")
// EMIT-NEXT: body(@q.body) code(@q.code)
func.func @qkv(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %wq : tensor<8x6xf32> {logical.name = "wq", logical.role = "param"},
    %wk : tensor<8x6xf32> {logical.name = "wk", logical.role = "param"},
    %wv : tensor<8x6xf32> {logical.name = "wv", logical.role = "param"},
    %b : tensor<6xf32> {logical.name = "b", logical.role = "param"},
    %c : tensor<6xf32> {logical.name = "c", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "yq"}, tensor<4x6xf32> {logical.name = "yk"}, tensor<4x6xf32> {logical.name = "yv"}) {
  %bb = logical.broadcast %b {dimensions = [1], aicf.id = "bb", aicf.src = ["q"]} : tensor<6xf32> -> tensor<4x6xf32>
  %cb = logical.broadcast %c {dimensions = [1], aicf.id = "cb", aicf.src = ["v"]} : tensor<6xf32> -> tensor<4x6xf32>
  %q = logical.matmul %x, %wq {aicf.id = "q", aicf.src = ["q"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %qb = logical.add %q, %bb {aicf.id = "q.bias", aicf.src = ["q"]} : tensor<4x6xf32>
  %e = logical.reshape %qb {aicf.id = "flat", aicf.src = ["flat"]} : tensor<4x6xf32> -> tensor<24xf32>
  %f = logical.exp %e {aicf.id = "exp", aicf.src = ["exp"]} : tensor<24xf32>
  %g = logical.reshape %f {aicf.id = "back", aicf.src = ["back"]} : tensor<24xf32> -> tensor<4x6xf32>
  %k = logical.matmul %x, %wk {aicf.id = "k", aicf.src = ["k"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %kb = logical.add %k, %bb {aicf.id = "k.bias", aicf.src = ["k"]} : tensor<4x6xf32>
  %v = logical.matmul %x, %wv {aicf.id = "v", aicf.src = ["v"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %vb = logical.add %v, %cb {aicf.id = "v.bias", aicf.src = ["v"]} : tensor<4x6xf32>
  func.return %g, %kb, %vb : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// Pointwise ops that differ stay behind: all products have the same program, or none.
// CHECK-LABEL: func.func @differ
// CHECK: %{{.*}}, %{{.*}} = emit.group "a" from ["a", "b"]
// CHECK: logical.relu
// CHECK: logical.tanh
func.func @differ(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x6xf32> {logical.name = "w", logical.role = "param"},
    %u : tensor<8x6xf32> {logical.name = "u", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "ya"}, tensor<4x6xf32> {logical.name = "yb"}) {
  %a = logical.matmul %x, %w {aicf.id = "a", aicf.src = ["a"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %ra = logical.relu %a {aicf.id = "a.act", aicf.src = ["a"]} : tensor<4x6xf32>
  %b = logical.matmul %x, %u {aicf.id = "b", aicf.src = ["b"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %rb = logical.tanh %b {aicf.id = "b.act", aicf.src = ["b"]} : tensor<4x6xf32>
  func.return %ra, %rb : tensor<4x6xf32>, tensor<4x6xf32>
}

// A product whose weight is made of the other's result cannot run beside it.
// CHECK-LABEL: func.func @chained
// CHECK-NOT: emit.group
func.func @chained(
    %x : tensor<6x6xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<6x6xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<6x6xf32> {logical.name = "ya"}, tensor<6x6xf32> {logical.name = "yb"}) {
  %a = logical.matmul %x, %w {aicf.id = "chain", aicf.src = ["chain"]} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %t = logical.transpose %a {permutation = [1, 0], aicf.id = "turn", aicf.src = ["turn"]} : tensor<6x6xf32> -> tensor<6x6xf32>
  %b = logical.matmul %x, %t {aicf.id = "next", aicf.src = ["next"]} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %a, %b : tensor<6x6xf32>, tensor<6x6xf32>
}

// Products of different shapes, of different operands, or with one weight are not side by side; nothing is said.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: emit.group
func.func @apart(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %z : tensor<4x8xf32> {logical.name = "z", logical.role = "input"},
    %w : tensor<8x6xf32> {logical.name = "w", logical.role = "param"},
    %u : tensor<8x5xf32> {logical.name = "u", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "ya"}, tensor<4x5xf32> {logical.name = "yb"}, tensor<4x6xf32> {logical.name = "yc"}) {
  %a = logical.matmul %x, %w {aicf.id = "pa", aicf.src = ["pa"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %b = logical.matmul %x, %u {aicf.id = "pb", aicf.src = ["pb"]} : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %c = logical.matmul %z, %w {aicf.id = "pc", aicf.src = ["pc"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  func.return %a, %b, %c : tensor<4x6xf32>, tensor<4x5xf32>, tensor<4x6xf32>
}

// A product that reads the first stands between them, as one of the forward part does where the second belongs to the
// backward part: its result would be kept meanwhile.
// CHECK-LABEL: func.func @far
// CHECK-NOT: emit.group
func.func @far(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"},
    %u : tensor<8x8xf32> {logical.name = "u", logical.role = "param"})
    -> (tensor<4x8xf32> {logical.name = "y"}, tensor<4x8xf32> {logical.name = "z"}) {
  %a = logical.matmul %x, %w {aicf.id = "early", aicf.src = ["early"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = logical.matmul %a, %u {aicf.id = "meanwhile", aicf.src = ["meanwhile"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = logical.matmul %x, %u {aicf.id = "later", aicf.src = ["later"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  func.return %y, %z : tensor<4x8xf32>, tensor<4x8xf32>
}
