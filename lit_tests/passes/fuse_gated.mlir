// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-gated' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"gated\": false}}"},fuse-gated' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"prologue\": false}}"},fuse-gated' | filecheck %s --check-prefix=PLAIN
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-gated' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-gated,fuse-elementwise,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "fuse-gated" ["gate", "gate.bias", "up", "act.sigmoid", "act", "y"] choice "one kernel for 6 ops" because "the left operand is read once, and only what is made of both products is written"
// CHECK-NEXT: emit.decision "fuse-gated" ["ngate", "n.square"{{.*}}"ny"] choice "one kernel for 11 ops" because "the left operand is read once, and only what is made of both products is written; its rows are computed on the way in"
// CHECK-NEXT: }
// OFF: emit.decision "fuse-gated" ["gate", "up"] choice "not fused" because "gated fusion is off by policy (fusion.gated)"
// CPU: emit.decision "fuse-gated" ["gate", "gate.bias", "up", "act.sigmoid", "act", "y"] choice "one kernel for 6 ops"
// CPU-NEXT: emit.decision "fuse-gated" ["ngate", {{.*}}, "ny"] choice "one kernel for 11 ops"
// PLAIN: emit.decision "fuse-gated" ["ngate", "nup", "nact.sigmoid", "nact", "ny"] choice "one kernel for 5 ops"

// A SwiGLU: both products, the bias of one, and what joins them.
// CHECK-LABEL: func.func @swiglu
// CHECK-NEXT: logical.broadcast
// CHECK-NEXT: %y = emit.group "gate" from ["gate", "up", "act", "y"] ins(%x_1 = %x : tensor<4x8xf32>, %g_1 = %g : tensor<8x6xf32>, %b_1 = %b : tensor<6xf32>, %u_1 = %u : tensor<8x6xf32>)
// CHECK: func.return %y
// OFF-LABEL: func.func @swiglu
// OFF-NOT: emit.group
// Operands: the left one, both right ones, and the rest; both accumulators come first in the code.
// EMIT: emit.kernel @gate.code parallel [4, 6] reduce []
// EMIT-NEXT: ^bb0(%m: f32, %n: f32, %b: f32):
// EMIT: emit.resolved "gemm_gated" id(27) name("gate") src(["gate", "up", "act", "y"])
// EMIT-NEXT: ins(%x, %g, %u, %b : {{.*}}) outs(%y
// EMIT-NEXT: attrs {transpose_a = false, transpose_b = false} schema("gemm_gated.v1") blob("0x0000")
// EMIT-NEXT: body(@gate.body) code(@gate.code)
func.func @swiglu(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %g : tensor<8x6xf32> {logical.name = "g", logical.role = "param"},
    %u : tensor<8x6xf32> {logical.name = "u", logical.role = "param"},
    %b : tensor<6xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<4x6xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %g {aicf.id = "gate", aicf.src = ["gate"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %bb = logical.broadcast %b {dimensions = [1], aicf.id = "gate.bb", aicf.src = ["gate"]} : tensor<6xf32> -> tensor<4x6xf32>
  %mb = logical.add %m, %bb {aicf.id = "gate.bias", aicf.src = ["gate"]} : tensor<4x6xf32>
  %n = logical.matmul %x, %u {aicf.id = "up", aicf.src = ["up"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %s = logical.sigmoid %mb {aicf.id = "act.sigmoid", aicf.src = ["act"]} : tensor<4x6xf32>
  %a = logical.mul %mb, %s {aicf.id = "act", aicf.src = ["act"]} : tensor<4x6xf32>
  %y = logical.mul %a, %n {aicf.id = "y", aicf.src = ["y"]} : tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// A norm that both products alone read is the prologue; x comes first, its scale after the right operands.
// CHECK-LABEL: func.func @normed
// CHECK: emit.group "ngate"
// PLAIN-LABEL: func.func @normed
// PLAIN: logical.rsqrt
// PLAIN: emit.group "ngate"
// EMIT: emit.kernel @ngate.prologue parallel [4] reduce [8]
// EMIT-NEXT: ^bb0(%x: f32, %w: f32):
// EMIT: emit.resolved "norm_gated" id(31) name("ngate")
// EMIT-NEXT: ins(%x, %g, %u, %w : {{.*}})
// EMIT-NEXT: attrs {transpose_a = false, transpose_b = false, prologue_operands = 1 : i64} schema("norm_gated.v1")
// EMIT-NEXT: body(@ngate.body) code(@ngate.code) prologue(@ngate.prologue)
func.func @normed(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8xf32> {logical.name = "w", logical.role = "param"},
    %g : tensor<8x6xf32> {logical.name = "g", logical.role = "param"},
    %u : tensor<8x6xf32> {logical.name = "u", logical.role = "param"}) -> (tensor<4x6xf32> {logical.name = "y"}) {
  %q = logical.mul %x, %x {aicf.id = "n.square", aicf.src = ["n"]} : tensor<4x8xf32>
  %r = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "n.sum", aicf.src = ["n"]} : tensor<4x8xf32> -> tensor<4x1xf32>
  %i = logical.rsqrt %r {aicf.id = "n.rsqrt", aicf.src = ["n"]} : tensor<4x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "n.rb", aicf.src = ["n"]} : tensor<4x1xf32> -> tensor<4x8xf32>
  %z = logical.mul %x, %ib {aicf.id = "n.scaled", aicf.src = ["n"]} : tensor<4x8xf32>
  %wb = logical.broadcast %w {dimensions = [1], aicf.id = "n.wb", aicf.src = ["n"]} : tensor<8xf32> -> tensor<4x8xf32>
  %h = logical.mul %z, %wb {aicf.id = "n", aicf.src = ["n"]} : tensor<4x8xf32>
  %m = logical.matmul %h, %g {aicf.id = "ngate", aicf.src = ["ngate"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %n = logical.matmul %h, %u {aicf.id = "nup", aicf.src = ["nup"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %s = logical.sigmoid %m {aicf.id = "nact.sigmoid", aicf.src = ["nact"]} : tensor<4x6xf32>
  %a = logical.mul %m, %s {aicf.id = "nact", aicf.src = ["nact"]} : tensor<4x6xf32>
  %y = logical.mul %a, %n {aicf.id = "ny", aicf.src = ["ny"]} : tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// A product that is returned too is written in any case, and products of different operands share nothing.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: emit.group
func.func @apart(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %z : tensor<4x8xf32> {logical.name = "z", logical.role = "input"},
    %g : tensor<8x6xf32> {logical.name = "g", logical.role = "param"},
    %u : tensor<8x6xf32> {logical.name = "u", logical.role = "param"})
    -> (tensor<4x6xf32> {logical.name = "a"}, tensor<4x6xf32> {logical.name = "b"}, tensor<4x6xf32> {logical.name = "c"}) {
  %m = logical.matmul %x, %g {aicf.id = "m", aicf.src = ["m"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %n = logical.matmul %x, %u {aicf.id = "n2", aicf.src = ["n2"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %o = logical.matmul %z, %u {aicf.id = "o", aicf.src = ["o"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %a = logical.mul %m, %n {aicf.id = "a", aicf.src = ["a"]} : tensor<4x6xf32>
  %b = logical.mul %m, %o {aicf.id = "b", aicf.src = ["b"]} : tensor<4x6xf32>
  func.return %a, %b, %m : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}
