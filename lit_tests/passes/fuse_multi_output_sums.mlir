// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,fuse-multi-output' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,fuse-multi-output,select-kernels,generate-kernels,lower-to-emit,schedule' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"kernels\": {\"gemm\": \"cuda.gemm_mma\"}}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=KIND
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"matmul\": \"cublasLt\"}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=LIBRARY

// CHECK: emit.decision "fuse-multi-output" ["weight", "bias"] choice "one kernel for 2 ops, 2 results" because "what several ops read is read once"
// CHECK: emit.decision "fuse-multi-output" ["a.weight", "a.bias"] choice "one kernel for 2 ops, 2 results"
// CHECK: emit.decision "fuse-multi-output" ["few.weight"] choice "not fused" {{.*}} rejected {few.bias = "cuda.gemm_wgmma_sums: warpgroup products take f16 and bf16 here, A is f32"}
// LIBRARY: emit.decision "fuse-multi-output" ["weight"] choice "not fused" {{.*}} rejected {bias = "the policy prefers cublasLt for products, and that cannot run them fused"}
// CPU: emit.decision "fuse-multi-output" ["weight"] choice "not fused"
// KIND: emit.decision "fuse-multi-output" ["weight"] choice "not fused" {{.*}} rejected {bias = "the policy pins kernel cuda.gemm_mma for products of its kind, and that cannot run them fused"}

// The gradients of a weight and of a bias: one reads all that the other sums.
// CHECK-LABEL: func.func @gradients
// CHECK-NEXT: %w, %b = emit.group "weight" from ["weight", "bias"] ins(%x_1 = %x : tensor<4096x768xbf16>, %dy_1 = %dy : tensor<4096x3072xbf16>)
// CHECK-NEXT: logical.matmul
// CHECK-NEXT: logical.reduce_sum
// EMIT: emit.resolved "gemm_sums" id(46)
// EMIT: attrs {transpose_a = true, transpose_b = false, summed = "b"} schema("gemm_sums.v1")
// EMIT: kernel("cuda.gemm_wgmma_sums"
func.func @gradients(
    %x : tensor<4096x768xbf16> {logical.name = "x", logical.role = "input"},
    %dy : tensor<4096x3072xbf16> {logical.name = "dy", logical.role = "input"})
    -> (tensor<768x3072xbf16> {logical.name = "dw"}, tensor<3072xbf16> {logical.name = "db"}) {
  %w = logical.matmul %x, %dy {transpose_a, aicf.id = "weight", aicf.src = ["weight"]} : (tensor<4096x768xbf16>, tensor<4096x3072xbf16>) -> tensor<768x3072xbf16>
  %b = logical.reduce_sum %dy {axes = [0], aicf.id = "bias", aicf.src = ["bias"]} : tensor<4096x3072xbf16> -> tensor<3072xbf16>
  func.return %w, %b : tensor<768x3072xbf16>, tensor<3072xbf16>
}

// The sum may come first, and be that of the left operand.
// CHECK-LABEL: func.func @of_the_left_operand
// CHECK: logical.matmul
// CHECK-NEXT: logical.reduce_sum
// EMIT: summed = "a"
func.func @of_the_left_operand(
    %x : tensor<4096x768xbf16> {logical.name = "x", logical.role = "input"},
    %dy : tensor<4096x3072xbf16> {logical.name = "dy", logical.role = "input"})
    -> (tensor<3072x768xbf16> {logical.name = "dw"}, tensor<3072xbf16> {logical.name = "db"}) {
  %b = logical.reduce_sum %dy {axes = [0], aicf.id = "a.bias", aicf.src = ["a.bias"]} : tensor<4096x3072xbf16> -> tensor<3072xbf16>
  %w = logical.matmul %dy, %x {transpose_a, aicf.id = "a.weight", aicf.src = ["a.weight"]} : (tensor<4096x3072xbf16>, tensor<4096x768xbf16>) -> tensor<3072x768xbf16>
  func.return %w, %b : tensor<3072x768xbf16>, tensor<3072xbf16>
}

// Rows of which the sum sees two dims, and the product one: in the instruction both see a matrix.
// CHECK-LABEL: func.func @rows_of_batches
// CHECK: emit.group {{.*}} ins(%dy_1 = %dy : tensor<32x128x3072xbf16>, %x_1 = %x : tensor<4096x768xbf16>)
// EMIT: emit.body @{{.*}} {
// EMIT: logical.reduce_sum %{{.*}} {axes = [0], aicf.id = "batch.bias"{{.*}} : tensor<4096x3072xbf16> -> tensor<3072xbf16>
// EMIT: emit.resolved "gemm_sums" id(46)
func.func @rows_of_batches(
    %x : tensor<4096x768xbf16> {logical.name = "x", logical.role = "input"},
    %dy : tensor<32x128x3072xbf16> {logical.name = "dy", logical.role = "input"})
    -> (tensor<3072x768xbf16> {logical.name = "dw"}, tensor<3072xbf16> {logical.name = "db"}) {
  %r = logical.reshape %dy {aicf.id = "batch.rows", aicf.src = ["batch.weight"]} : tensor<32x128x3072xbf16> -> tensor<4096x3072xbf16>
  %w = logical.matmul %r, %x {transpose_a, aicf.id = "batch.weight", aicf.src = ["batch.weight"]} : (tensor<4096x3072xbf16>, tensor<4096x768xbf16>) -> tensor<3072x768xbf16>
  %b = logical.reduce_sum %dy {axes = [0, 1], aicf.id = "batch.bias", aicf.src = ["batch.bias"]} : tensor<32x128x3072xbf16> -> tensor<3072xbf16>
  func.return %w, %b : tensor<3072x768xbf16>, tensor<3072xbf16>
}

// What warpgroups do not multiply.
// CHECK-LABEL: func.func @no_halves
// CHECK: emit.group "few.weight" from ["few.weight"]
// CHECK: emit.group "few.bias" from ["few.bias"]
func.func @no_halves(
    %x : tensor<64x64xf32> {logical.name = "x", logical.role = "input"},
    %dy : tensor<64x64xf32> {logical.name = "dy", logical.role = "input"})
    -> (tensor<64x64xf32> {logical.name = "dw"}, tensor<64xf32> {logical.name = "db"}) {
  %w = logical.matmul %x, %dy {transpose_a, aicf.id = "few.weight", aicf.src = ["few.weight"]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %b = logical.reduce_sum %dy {axes = [0], aicf.id = "few.bias", aicf.src = ["few.bias"]} : tensor<64x64xf32> -> tensor<64xf32>
  func.return %w, %b : tensor<64x64xf32>, tensor<64xf32>
}
