// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' > %t.fused
// RUN: filecheck %s < %t.fused
// RUN: aicf-opt %t.fused > %t.again
// RUN: diff %t.fused %t.again
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{\"fusion\": {\"attention\": false, \"gated\": false, \"horizontal\": false, \"prologue\": false}}"}' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" threads=2}' | filecheck %s --check-prefix=TWO

// What a transformer block is made of, down to native kernels: each fusion is one instruction of the packed microkernel.
// It is formed where it is predicted to take no longer than its parts; the record says how rows, tiles and blocks run.

// CHECK: emit.decision "select-kernels" ["scores"] choice "cpu.attention_avx2"
// CHECK-LABEL: emit.program @attention
// CHECK: emit.resolved "attention" id(29) name("scores")
// CHECK: kernel("cpu.attention_avx2", {version = 5 : i64, determinism = "bitwise", block_rows = 64 : i64, scores = {lanes = 8 : i64, {{.*}}b_source = "packed"{{.*}}}, output = {{.*}}, share = "none", threads = 1 : i64, key_steps = 1 : i64, workspace_bytes = {{[0-9]+}} : i64, combination_order = "scores ascending k; rows 32 strided partial results, added pairwise; output ascending k", scale = 2.500000e-01 : f64, causal = false, past = 0 : i64, nan_as_zero = false, empty_as_zero = false})
// CHECK-NOT: emit.resolved
// OFF-LABEL: emit.program @attention
// OFF: emit.resolved "gemm
// OFF: emit.resolved "softmax"
// OFF: emit.resolved "gemm"
// TWO-LABEL: emit.program @attention
// TWO: kernel("cpu.attention_avx2", {{{.*}}share = "batches", threads = 2 : i64
func.func @attention(
    %q : tensor<4x64x16xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<4x64x16xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<4x64x16xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<4x64x16xf32> {logical.name = "y"}) {
  %scores = logical.matmul %q, %k {transpose_b} : (tensor<4x64x16xf32>, tensor<4x64x16xf32>) -> tensor<4x64x64xf32>
  %factor = logical.constant dense<0.25> : tensor<4x64x64xf32>
  %scaled = logical.mul %scores, %factor : tensor<4x64x64xf32>
  %probabilities = logical.softmax %scaled {axis = 2} : tensor<4x64x64xf32>
  %y = logical.matmul %probabilities, %v : (tensor<4x64x64xf32>, tensor<4x64x16xf32>) -> tensor<4x64x16xf32>
  func.return %y : tensor<4x64x16xf32>
}

// Rows are made in workspace, 24 x 32 x 4 bytes of it, and the weight is packed once.
// CHECK-LABEL: emit.program @feed
// CHECK: emit.resolved "norm_gated" id(31) name("gate")
// CHECK-NEXT: ins(%x, %{{.*}}, %{{.*}}, %s, %t : {{.*}}packed_b{{.*}}packed_b
// CHECK: kernel("cpu.gemm_avx2", {{.*}}rows = {vector_dim = 0 : i64, lanes = 8 : i64, {{.*}}}})
// CHECK-NOT: emit.resolved
// OFF-LABEL: emit.program @feed
// OFF: emit.resolved "layernorm_fwd"
// OFF: emit.resolved "gemm"
// OFF: emit.resolved "gemm_epilogue"
func.func @feed(
    %x : tensor<24x32xf32> {logical.name = "x", logical.role = "input"},
    %s : tensor<32xf32> {logical.name = "s", logical.role = "param"},
    %t : tensor<32xf32> {logical.name = "t", logical.role = "param"},
    %g : tensor<32x64xf32> {logical.name = "g", logical.role = "param"},
    %u : tensor<32x64xf32> {logical.name = "u", logical.role = "param"}) -> (tensor<24x64xf32> {logical.name = "y"}) {
  %normal = logical.layer_norm %x, %s, %t {axis = 1, epsilon = 1.0e-5 : f64} : (tensor<24x32xf32>, tensor<32xf32>, tensor<32xf32>) -> tensor<24x32xf32>
  %gate = logical.matmul %normal, %g : (tensor<24x32xf32>, tensor<32x64xf32>) -> tensor<24x64xf32>
  %up = logical.matmul %normal, %u : (tensor<24x32xf32>, tensor<32x64xf32>) -> tensor<24x64xf32>
  %open = logical.sigmoid %gate : tensor<24x64xf32>
  %y = logical.mul %open, %up : tensor<24x64xf32>
  func.return %y : tensor<24x64xf32>
}
