// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-norms' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"fusion\": {\"norm\": false}}"},fuse-norms' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-norms' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-norms' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"kernels\": {\"gemm_norm\": \"cuda.gemm_norm\"}}"},fuse-norms' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target=reference},fuse-norms,fuse-elementwise,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "fuse-norms" ["fc", "fc.residual", "n.widen", "n.square", "n.sum", "n.rsqrt", "n.rb", "n.scaled", "n.g", "n.gb", "n.weighted", "n"] choice "one kernel for 12 ops" because "its rows stay in registers until they are normed"
// CHECK-NEXT: emit.decision "fuse-norms" ["fc.1", {{.*}}] choice "one kernel for 8 ops" because "its rows stay in registers until they are normed, and are written once for others to read"
// OFF: emit.decision "fuse-norms" ["fc", "n.sum"] choice "not fused" because "norm fusion is off by policy (fusion.norm)"
// Nothing is gained on a CPU.
// CPU: emit.decision "fuse-norms" ["fc", "n.sum"] choice "not fused" {{.*}} "predicted {{.*}} us fused and {{.*}} us unfused
// CPU-NEXT: emit.decision "fuse-norms" ["fc", "n.sum"] choice "not fused" because "fusing them is illegal or not predicted to be faster on this target" rejected {"fc + fc.residual + n.square + n.sum + n.rsqrt + n.rb + n.scaled + n" = "predicted {{.*}} us fused and {{.*}} us unfused; {{.*}}"}
// CUDA: emit.decision "fuse-norms" ["fc", "fc.residual", {{.*}}] choice "one kernel for 12 ops"
// PINNED: emit.decision "fuse-norms" ["fc", "fc.residual", {{.*}}] choice "one kernel for 12 ops"
// PINNED: emit.decision "fuse-norms" ["fc.1", "fc", "fc.residual", {{.*}}] choice "one kernel for 12 ops"
// CUDA-NEXT: emit.decision "fuse-norms" ["fc", "n.sum"] choice "not fused" {{.*}} "cuda.gemm_norm: warpgroup products take f16 and bf16 here, A is f32"
// CUDA-NEXT: emit.decision "fuse-norms" ["fc", "n.sum"] choice "not fused" {{.*}} = "predicted {{.*}} us fused and {{.*}} us unfused; {{.*}}", {{.*}} = "it leaves out 'n.g', which is fused with the norm if the product is not"}
// CUDA-NEXT: emit.decision "fuse-norms" ["fc", "n.sum"] choice "not fused" {{.*}} "cuda.gemm_norm: a row of 4096 columns does not fit in the registers of a cluster of 8 blocks"

// A norm by the root of the sum of squares, also the cast of its scale, joins the product and its residual. What is normed
// is computed in the first phase and kept.
// CHECK-LABEL: func.func @norm
// CHECK: emit.group "fc" from ["fc", "n"]
// OFF-LABEL: func.func @norm
// OFF-NOT: emit.group
// EMIT: emit.kernel @fc.code parallel [1024] reduce [768]
// EMIT-NEXT: ^bb0(%m: f16, %z: f16, %g: f16):
// EMIT-NEXT: %s, %h = emit.phase -> f32, f32 {
// EMIT: emit.resolved "gemm_norm" id(32) name("fc") src(["fc", "n"])
// EMIT-NEXT: ins(%x, %w, %z, %g : {{.*}}) outs(%y : {{.*}})
// EMIT-NEXT: attrs {transpose_a = false, transpose_b = true} schema("gemm_norm.v1") blob("0x0001")
func.func @norm(
    %x : tensor<1024x768xf16> {logical.name = "x", logical.role = "input"},
    %z : tensor<1024x768xf16> {logical.name = "z", logical.role = "input"},
    %w : tensor<768x768xf16> {logical.name = "w", logical.role = "param"},
    %g : tensor<768xf16> {logical.name = "g", logical.role = "param"}) -> (tensor<1024x768xf16> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {transpose_b, aicf.id = "fc", aicf.src = ["fc"]} : (tensor<1024x768xf16>, tensor<768x768xf16>) -> tensor<1024x768xf16>
  %v = logical.add %m, %z {aicf.id = "fc.residual", aicf.src = ["fc"]} : tensor<1024x768xf16>
  %h = logical.cast %v {aicf.id = "n.widen", aicf.src = ["n"]} : tensor<1024x768xf16> -> tensor<1024x768xf32>
  %q = logical.mul %h, %h {aicf.id = "n.square", aicf.src = ["n"]} : tensor<1024x768xf32>
  %s = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "n.sum", aicf.src = ["n"]} : tensor<1024x768xf32> -> tensor<1024x1xf32>
  %i = logical.rsqrt %s {aicf.id = "n.rsqrt", aicf.src = ["n"]} : tensor<1024x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "n.rb", aicf.src = ["n"]} : tensor<1024x1xf32> -> tensor<1024x768xf32>
  %c = logical.mul %h, %ib {aicf.id = "n.scaled", aicf.src = ["n"]} : tensor<1024x768xf32>
  %gw = logical.cast %g {aicf.id = "n.g", aicf.src = ["n"]} : tensor<768xf16> -> tensor<768xf32>
  %gb = logical.broadcast %gw {dimensions = [1], aicf.id = "n.gb", aicf.src = ["n"]} : tensor<768xf32> -> tensor<1024x768xf32>
  %u = logical.mul %c, %gb {aicf.id = "n.weighted", aicf.src = ["n"]} : tensor<1024x768xf32>
  %y = logical.cast %u {aicf.id = "n", aicf.src = ["n"]} : tensor<1024x768xf32> -> tensor<1024x768xf16>
  func.return %y : tensor<1024x768xf16>
}

// What is normed is a result too where others read it.
// EMIT: emit.kernel @fc.1.code
// EMIT: emit.resolved "gemm_norm" id(32) name("fc.1")
// EMIT-NEXT: ins(%x, %w, %z, %g : {{.*}}) outs(%v, %y : {{.*}})
func.func @kept(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %z : tensor<4x6xf32> {logical.name = "z", logical.role = "input"},
    %w : tensor<6x8xf32> {logical.name = "w", logical.role = "param"},
    %g : tensor<6xf32> {logical.name = "g", logical.role = "param"}) -> (tensor<4x6xf32> {logical.name = "y"}, tensor<4x6xf32> {logical.name = "v"}) {
  %m = logical.matmul %x, %w {transpose_b, aicf.id = "fc", aicf.src = ["fc"]} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
  %v = logical.add %m, %z {aicf.id = "fc.residual", aicf.src = ["fc"]} : tensor<4x6xf32>
  %q = logical.mul %v, %v {aicf.id = "n.square", aicf.src = ["n"]} : tensor<4x6xf32>
  %s = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "n.sum", aicf.src = ["n"]} : tensor<4x6xf32> -> tensor<4x1xf32>
  %i = logical.rsqrt %s {aicf.id = "n.rsqrt", aicf.src = ["n"]} : tensor<4x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "n.rb", aicf.src = ["n"]} : tensor<4x1xf32> -> tensor<4x6xf32>
  %c = logical.mul %v, %ib {aicf.id = "n.scaled", aicf.src = ["n"]} : tensor<4x6xf32>
  %gb = logical.broadcast %g {dimensions = [1], aicf.id = "n.gb", aicf.src = ["n"]} : tensor<6xf32> -> tensor<4x6xf32>
  %y = logical.mul %c, %gb {aicf.id = "n", aicf.src = ["n"]} : tensor<4x6xf32>
  func.return %y, %v : tensor<4x6xf32>, tensor<4x6xf32>
}

// Few rows: blocks that hold whole rows would be fewer than the product alone can use.
func.func @few(
    %x : tensor<128x3072xf16> {logical.name = "x", logical.role = "input"},
    %z : tensor<128x768xf16> {logical.name = "z", logical.role = "input"},
    %w : tensor<768x3072xf16> {logical.name = "w", logical.role = "param"},
    %g : tensor<768xf16> {logical.name = "g", logical.role = "param"}) -> (tensor<128x768xf16> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {transpose_b, aicf.id = "fc", aicf.src = ["fc"]} : (tensor<128x3072xf16>, tensor<768x3072xf16>) -> tensor<128x768xf16>
  %v = logical.add %m, %z {aicf.id = "fc.residual", aicf.src = ["fc"]} : tensor<128x768xf16>
  %h = logical.cast %v {aicf.id = "n.widen", aicf.src = ["n"]} : tensor<128x768xf16> -> tensor<128x768xf32>
  %q = logical.mul %h, %h {aicf.id = "n.square", aicf.src = ["n"]} : tensor<128x768xf32>
  %s = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "n.sum", aicf.src = ["n"]} : tensor<128x768xf32> -> tensor<128x1xf32>
  %i = logical.rsqrt %s {aicf.id = "n.rsqrt", aicf.src = ["n"]} : tensor<128x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "n.rb", aicf.src = ["n"]} : tensor<128x1xf32> -> tensor<128x768xf32>
  %c = logical.mul %h, %ib {aicf.id = "n.scaled", aicf.src = ["n"]} : tensor<128x768xf32>
  %gw = logical.cast %g {aicf.id = "n.g", aicf.src = ["n"]} : tensor<768xf16> -> tensor<768xf32>
  %gb = logical.broadcast %gw {dimensions = [1], aicf.id = "n.gb", aicf.src = ["n"]} : tensor<768xf32> -> tensor<128x768xf32>
  %u = logical.mul %c, %gb {aicf.id = "n.weighted", aicf.src = ["n"]} : tensor<128x768xf32>
  %y = logical.cast %u {aicf.id = "n", aicf.src = ["n"]} : tensor<128x768xf32> -> tensor<128x768xf16>
  func.return %y : tensor<128x768xf16>
}

// No cluster has the registers for such rows.
func.func @long(
    %x : tensor<64x64xf16> {logical.name = "x", logical.role = "input"},
    %z : tensor<64x4096xf16> {logical.name = "z", logical.role = "input"},
    %w : tensor<4096x64xf16> {logical.name = "w", logical.role = "param"},
    %g : tensor<4096xf16> {logical.name = "g", logical.role = "param"}) -> (tensor<64x4096xf16> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {transpose_b, aicf.id = "fc", aicf.src = ["fc"]} : (tensor<64x64xf16>, tensor<4096x64xf16>) -> tensor<64x4096xf16>
  %v = logical.add %m, %z {aicf.id = "fc.residual", aicf.src = ["fc"]} : tensor<64x4096xf16>
  %h = logical.cast %v {aicf.id = "n.widen", aicf.src = ["n"]} : tensor<64x4096xf16> -> tensor<64x4096xf32>
  %q = logical.mul %h, %h {aicf.id = "n.square", aicf.src = ["n"]} : tensor<64x4096xf32>
  %s = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "n.sum", aicf.src = ["n"]} : tensor<64x4096xf32> -> tensor<64x1xf32>
  %i = logical.rsqrt %s {aicf.id = "n.rsqrt", aicf.src = ["n"]} : tensor<64x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "n.rb", aicf.src = ["n"]} : tensor<64x1xf32> -> tensor<64x4096xf32>
  %c = logical.mul %h, %ib {aicf.id = "n.scaled", aicf.src = ["n"]} : tensor<64x4096xf32>
  %gw = logical.cast %g {aicf.id = "n.g", aicf.src = ["n"]} : tensor<4096xf16> -> tensor<4096xf32>
  %gb = logical.broadcast %gw {dimensions = [1], aicf.id = "n.gb", aicf.src = ["n"]} : tensor<4096xf32> -> tensor<64x4096xf32>
  %u = logical.mul %c, %gb {aicf.id = "n.weighted", aicf.src = ["n"]} : tensor<64x4096xf32>
  %y = logical.cast %u {aicf.id = "n", aicf.src = ["n"]} : tensor<64x4096xf32> -> tensor<64x4096xf16>
  func.return %y : tensor<64x4096xf16>
}
