// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{matmul: openblas, attention: math}"}' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{matmul: wgmma, attention: flash_v2}"}' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_80" policy="{attention: flash_v3}"}' | filecheck %s --check-prefix=OLDER
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{matmul: wgmma, kernels: {q: cuda.gemm_mma}}"}' | filecheck %s --check-prefix=PIN
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{matmul: cublasLt}"}' | filecheck %s --check-prefix=LIBRARY
// RUN: not aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{attention: flsh_v2}"}' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{attention: flash}"}' | filecheck %s --check-prefix=ANY
// RUN: not aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{matmul: body}"},set-target{target="cpu:x86-64-v3"},assign-ids,lower-logical,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=TARGET

// A policy names kernels by family. What its library does not run gets another kernel, and the ledger says why; `math`
// computes an attention op by op.
// CHECK: emit.decision "fuse-attention" {{.*}} choice "not fused" because "attention fusion is off by policy (attention: math)"
// CHECK: emit.decision "select-kernels" ["q"] choice "cpu.gemm_avx2" because "lowest predicted time; unmeasured; matmul: openblas does not run it, see cpu.gemm_blas" rejected {cpu.gemm_blas = "{{.*}} multiplies f32 and f64 only"
// CHECK: emit.decision "select-kernels" ["a"] choice "cpu.gemm_avx2" because "lowest predicted time; unmeasured; matmul: openblas has no kernel for gemm_epilogue"

// CUDA: emit.decision "select-kernels" ["q"] choice "cuda.gemm_wgmma" because "policy prefers wgmma (matmul)" rejected {{.*}}cuda.gemm_mma = "the policy prefers wgmma (matmul); predicted
// CUDA: emit.decision "select-kernels" ["a"] choice "cuda.attention" because "policy prefers flash_v2 (attention)"
// OLDER: emit.decision "select-kernels" ["a"] choice "cuda.attention" because "lowest predicted time; unmeasured; attention: flash_v3 does not run it, see cuda.attention_wgmma"

// A name without its version means each version.
// ANY: emit.decision "select-kernels" ["a"] choice "cuda.attention{{.*}}" because "policy prefers flash (attention)"

// `kernels` says more than a family.
// PIN: emit.decision "select-kernels" ["q"] choice "cuda.gemm_mma" because "policy pins it for 'q'"

// Only a device knows the library's algorithms, and this target is not said to have the library.
// LIBRARY: emit.decision "select-kernels" ["q"] choice "cuda.gemm_mma" {{.*}}cuda.cublaslt = "unmeasured: run aicf tune; and the device cannot be queried: the target lists no cublasLt; compile with target cuda on the machine with the GPU, or give a tuning table"

// NAME: error: attention: backend 'cuda' has no library 'flsh_v2'; did you mean {{.*}} legal: auto, cudnn, decode, flash_v2, flash_v3, math, simt
// TARGET: error: matmul: backend 'cpu' has no library 'body'; legal: auto, native, openblas
func.func @attend(
    %x : tensor<8x64x64xf16> {logical.name = "x", logical.role = "input"},
    %wq : tensor<64x64xf16> {logical.name = "wq", logical.role = "param"},
    %k : tensor<8x96x64xf16> {logical.name = "k", logical.role = "input"},
    %v : tensor<8x96x64xf16> {logical.name = "v", logical.role = "input"}) -> (tensor<8x64x64xf16> {logical.name = "y"}) {
  %q = logical.matmul %x, %wq : (tensor<8x64x64xf16>, tensor<64x64xf16>) -> tensor<8x64x64xf16>
  %a = logical.attention %q, %k, %v : (tensor<8x64x64xf16>, tensor<8x96x64xf16>, tensor<8x96x64xf16>) -> tensor<8x64x64xf16>
  func.return %a : tensor<8x64x64xf16>
}
