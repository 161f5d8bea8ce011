// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' > %t.final
// RUN: filecheck %s < %t.final
// RUN: filecheck %s --check-prefix=ARENA < %t.final

// A post-norm transformer encoder block, as BERT has it: seven instructions. The three projections are one product, the
// attention with the views around it another; bias, residual and GELU are epilogues.

// CHECK-LABEL: emit.program @encoder
// CHECK: emit.resolved "gemm_multi" {{.*}} src(["query", "key", "value"])
// CHECK: emit.resolved "attention" {{.*}} name("scores")
// CHECK: emit.resolved "gemm_epilogue" {{.*}} src(["out", "attended"])
// CHECK: emit.resolved "layernorm_fwd" {{.*}} src(["norm1"])
// CHECK: emit.resolved "gemm_epilogue" {{.*}} src(["up", "act"])
// CHECK: emit.resolved "gemm_epilogue" {{.*}} src(["down", "fed"])
// CHECK: emit.resolved "layernorm_fwd" {{.*}} src(["y"])
// CHECK-NOT: emit.resolved

// What lives at the same time fits without a gap: five values of the width of the block while the attention runs.
// ARENA: emit.decision "plan-memory" ["encoder"] choice "arena of 655872 bytes for 7 slots" because "equals the lower bound"
func.func @encoder(
    %x : tensor<128x256xf32> {logical.name = "x", logical.role = "input"},
    %query.w : tensor<256x256xf32> {logical.name = "query.w", logical.role = "param"},
    %query.b : tensor<256xf32> {logical.name = "query.b", logical.role = "param"},
    %key.w : tensor<256x256xf32> {logical.name = "key.w", logical.role = "param"},
    %key.b : tensor<256xf32> {logical.name = "key.b", logical.role = "param"},
    %value.w : tensor<256x256xf32> {logical.name = "value.w", logical.role = "param"},
    %value.b : tensor<256xf32> {logical.name = "value.b", logical.role = "param"},
    %out.w : tensor<256x256xf32> {logical.name = "out.w", logical.role = "param"},
    %out.b : tensor<256xf32> {logical.name = "out.b", logical.role = "param"},
    %up.w : tensor<1024x256xf32> {logical.name = "up.w", logical.role = "param"},
    %up.b : tensor<1024xf32> {logical.name = "up.b", logical.role = "param"},
    %down.w : tensor<256x1024xf32> {logical.name = "down.w", logical.role = "param"},
    %down.b : tensor<256xf32> {logical.name = "down.b", logical.role = "param"},
    %norm1.w : tensor<256xf32> {logical.name = "norm1.w", logical.role = "param"},
    %norm1.b : tensor<256xf32> {logical.name = "norm1.b", logical.role = "param"},
    %norm2.w : tensor<256xf32> {logical.name = "norm2.w", logical.role = "param"},
    %norm2.b : tensor<256xf32> {logical.name = "norm2.b", logical.role = "param"})
    -> (tensor<128x256xf32> {logical.name = "y"}) {
  %query = logical.linear %x, %query.w, %query.b : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %key = logical.linear %x, %key.w, %key.b : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %value = logical.linear %x, %value.w, %value.b : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %q.split = logical.reshape %query : tensor<128x256xf32> -> tensor<128x4x64xf32>
  %q = logical.transpose %q.split {permutation = [1, 0, 2]} : tensor<128x4x64xf32> -> tensor<4x128x64xf32>
  %k.split = logical.reshape %key : tensor<128x256xf32> -> tensor<128x4x64xf32>
  %k = logical.transpose %k.split {permutation = [1, 0, 2]} : tensor<128x4x64xf32> -> tensor<4x128x64xf32>
  %v.split = logical.reshape %value : tensor<128x256xf32> -> tensor<128x4x64xf32>
  %v = logical.transpose %v.split {permutation = [1, 0, 2]} : tensor<128x4x64xf32> -> tensor<4x128x64xf32>

  %scores = logical.matmul %q, %k {transpose_b} : (tensor<4x128x64xf32>, tensor<4x128x64xf32>) -> tensor<4x128x128xf32>
  %scale = logical.constant dense<0.125> : tensor<4x128x128xf32>
  %scaled = logical.mul %scores, %scale : tensor<4x128x128xf32>
  %weights = logical.softmax %scaled {axis = 2} : tensor<4x128x128xf32>
  %heads = logical.matmul %weights, %v : (tensor<4x128x128xf32>, tensor<4x128x64xf32>) -> tensor<4x128x64xf32>
  %rows = logical.transpose %heads {permutation = [1, 0, 2]} : tensor<4x128x64xf32> -> tensor<128x4x64xf32>
  %context = logical.reshape %rows : tensor<128x4x64xf32> -> tensor<128x256xf32>

  %out = logical.linear %context, %out.w, %out.b : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %attended = logical.add %x, %out : tensor<128x256xf32>
  %norm1 = logical.layer_norm %attended, %norm1.w, %norm1.b {axis = 1, epsilon = 1.0e-05 : f64} : (tensor<128x256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %up = logical.linear %norm1, %up.w, %up.b : (tensor<128x256xf32>, tensor<1024x256xf32>, tensor<1024xf32>) -> tensor<128x1024xf32>
  %act = logical.gelu %up {approximate = "none"} : tensor<128x1024xf32>
  %down = logical.linear %act, %down.w, %down.b : (tensor<128x1024xf32>, tensor<256x1024xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %fed = logical.add %norm1, %down : tensor<128x256xf32>
  %y = logical.layer_norm %fed, %norm2.w, %norm2.b {axis = 1, epsilon = 1.0e-05 : f64} : (tensor<128x256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  func.return %y : tensor<128x256xf32>
}
