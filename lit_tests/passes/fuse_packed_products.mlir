// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4" policy="{\"fusion\": {\"gated\": false}}" until=fuse-elementwise}' | filecheck %s --check-prefix OFF
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s --check-prefix CUDA

// Products with packed weights are fused as others are: the gate and what it gates with the norm before them, and a
// product with the residual after it.
// CHECK: emit.decision "fuse-gated" ["gate", "rows.square"{{.*}}"hidden"] choice "one kernel for {{.*}} because "the left operand is read once, and only what is made of both products is written; its rows are computed on the way in"
// CHECK: emit.decision "fuse-epilogues" ["down", "y"] choice "one kernel for 2 ops"
// CHECK: emit.program @packed
// CHECK: emit.resolved "matmul_blocks_fused" id(55) name("gate")
// CHECK-NEXT: ins(%x, %{{.*}}, %{{.*}}, %scale{{.*}} : !emit.buffer<2x32xf32, bound>, !emit.buffer<64x18xui8, const, layout #emit.layout<"panels_of_blocks"
// CHECK-NEXT: attrs {scheme = "Q4_0", products = 2 : i64, prologue = true, prologue_operands = 1 : i64} schema("matmul_blocks_fused.v1")
// CHECK-NEXT: body(@gate.body) code(@gate.code) prologue(@gate.prologue)
// CHECK-NEXT: kernel("cpu.matmul_blocks_fused", {{.*}}products = 2 : i64{{.*}}rows = {
// CHECK: emit.resolved "matmul_blocks_fused" id(55) name("down")
// CHECK-NEXT: ins(%{{.*}}, %{{.*}}, %x : {{.*}}) outs(%y
// CHECK-NEXT: attrs {scheme = "Q4_0", products = 1 : i64, prologue = false, prologue_operands = 0 : i64}
// CHECK-NOT: emit.resolved
// On a GPU as well.
// CUDA: kernel("cuda.matmul_blocks", {{.*}}products = 2 : i64, prologue_operands = 1 : i64{{.*}}early_reads = [1 : i64, 2 : i64, 3 : i64]
// CUDA: kernel("cuda.matmul_blocks", {{.*}}products = 1 : i64, prologue_operands = 0 : i64
// CUDA-NOT: kernel(
// Without the gate each takes a copy of the norm along.
// OFF: emit.decision "fuse-gated" ["gate", "up"] choice "not fused" because "gated fusion is off by policy (fusion.gated)"
// OFF: emit.decision "fuse-prologues" ["gate", "rows.square"{{.*}}"hidden"] choice "one kernel for 12 ops"
// OFF: emit.decision "fuse-prologues" ["up", "rows.square.up"{{.*}}] choice "one kernel for 9 ops"
func.func @packed(
    %x : tensor<2x32xf32> {logical.name = "x", logical.role = "input"},
    %scale : tensor<32xf32> {logical.name = "scale", logical.role = "param"},
    %wg : tensor<64x18xui8> {logical.name = "wg", logical.role = "param"},
    %wu : tensor<64x18xui8> {logical.name = "wu", logical.role = "param"},
    %wd : tensor<32x36xui8> {logical.name = "wd", logical.role = "param"})
    -> (tensor<2x32xf32> {logical.name = "y"}) {
  %rows = logical.rms_norm %x, %scale {axis = 1, epsilon = 0.00001} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %gate = logical.matmul_blocks %rows, %wg {scheme = "Q4_0"} : (tensor<2x32xf32>, tensor<64x18xui8>) -> tensor<2x64xf32>
  %up = logical.matmul_blocks %rows, %wu {scheme = "Q4_0"} : (tensor<2x32xf32>, tensor<64x18xui8>) -> tensor<2x64xf32>
  %act = logical.silu %gate : tensor<2x64xf32>
  %hidden = logical.mul %act, %up : tensor<2x64xf32>
  %down = logical.matmul_blocks %hidden, %wd {scheme = "Q4_0"} : (tensor<2x64xf32>, tensor<32x36xui8>) -> tensor<2x32xf32>
  %y = logical.add %x, %down : tensor<2x32xf32>
  func.return %y : tensor<2x32xf32>
}
