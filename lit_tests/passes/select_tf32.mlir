// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{tf32: true}"},assign-ids,lower-logical,fuse-epilogues,materialize-views,fuse-elementwise,generate-kernels,select-kernels,lower-to-emit' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical,fuse-epilogues,materialize-views,fuse-elementwise,generate-kernels,select-kernels,lower-to-emit' | filecheck %s --check-prefix=IEEE
// RUN: not aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{kernels: {y: cuda.gemm_mma_tf32}}"},assign-ids,lower-logical,materialize-views,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=PINNED

// Where the policy allows it, tensor cores multiply f32 as TF32, and the record says so. Products of other types are
// what they were.
// CHECK: aicf.policy = {{.*}}tf32 = true
// CHECK: emit.decision "select-kernels" ["y"] choice "cuda.gemm_mma_tf32" {{.*}}cuda.gemm_simt = "predicted
// CHECK: emit.decision "select-kernels" ["z"] choice "cuda.gemm_{{(mma|wgmma)}}" {{.*}}cuda.gemm_mma_tf32 = "only f32 is rounded to TF32, A is f16"
// CHECK: kernel("cuda.gemm_mma_tf32", {{.*}}math = "tf32"
// CHECK-NOT: math =

// Nothing rounds f32 by itself, nor because its kernel is asked for.
// IEEE: emit.decision "select-kernels" ["y"] choice "cuda.gemm_simt" {{.*}}cuda.gemm_mma_tf32 = "it rounds f32 operands to TF32, the policy has not allowed that (tf32: true)"
// IEEE-NOT: math =
// PINNED: error: no kernel of target cuda runs 'y' (logical.matmul): the policy pins kernel cuda.gemm_mma_tf32 for it, which cannot run it: it rounds f32 operands to TF32, the policy has not allowed that (tf32: true)
func.func @f(
    %a : tensor<64x784xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<512x784xf32> {logical.name = "b", logical.role = "param"},
    %c : tensor<64x256xf16> {logical.name = "c", logical.role = "input"},
    %d : tensor<256x128xf16> {logical.name = "d", logical.role = "param"})
    -> (tensor<64x512xf32> {logical.name = "y"}, tensor<64x128xf16> {logical.name = "z"}) {
  %y = logical.matmul %a, %b {transpose_b = true} : (tensor<64x784xf32>, tensor<512x784xf32>) -> tensor<64x512xf32>
  %z = logical.matmul %c, %d : (tensor<64x256xf16>, tensor<256x128xf16>) -> tensor<64x128xf16>
  func.return %y, %z : tensor<64x512xf32>, tensor<64x128xf16>
}
