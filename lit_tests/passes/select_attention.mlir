// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical,fuse-attention,materialize-views,fuse-elementwise,select-kernels,lower-to-emit' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_80"},assign-ids,lower-logical,fuse-attention,materialize-views,fuse-elementwise,select-kernels,lower-to-emit' | filecheck %s --check-prefix=AMPERE

// Grouped and causal attention are one kernel on CUDA, whose record says what a query sees. Long ones run out of bulk
// tensor copies where there are such; both kernels of tensor cores add a mask, and the faster is taken.
// CHECK: emit.decision "select-kernels" ["long"] choice "cuda.attention_wgmma" {{.*}}cuda.attention = "predicted
// CHECK: emit.decision "select-kernels" ["masked"] choice "cuda.attention" {{.*}}cuda.attention_wgmma = "predicted
// CHECK: emit.resolved "attention" id(29) name("long
// CHECK: kernel("cuda.attention_wgmma", {version = 3 : i64, determinism = "bitwise", scale = 1.250000e-01 : f64, causal = false, past = 0 : i64, nan_as_zero = false, empty_as_zero = false, grid = [
// CHECK: emit.resolved "attention" id(29) name("masked
// CHECK: kernel("cuda.attention", {version = 3 : i64, determinism = "bitwise", scale = 1.250000e-01 : f64, causal = true, past = 512 : i64, nan_as_zero = false, empty_as_zero = false, grid = [
// AMPERE: cuda.attention_wgmma = "warpgroup products and bulk tensor copies need sm_90a, the target is sm_80"
// AMPERE: kernel("cuda.attention", {{.*}}causal = false, past = 0 : i64
// AMPERE: kernel("cuda.attention", {{.*}}causal = true, past = 512 : i64
func.func @twice(
    %q : tensor<16x8x1024x64xf16> {logical.name = "q", logical.role = "input"},
    %k : tensor<16x2x1536x64xf16> {logical.name = "k", logical.role = "input"},
    %v : tensor<16x2x1536x64xf16> {logical.name = "v", logical.role = "input"},
    %mask : tensor<1x1536xi1> {logical.name = "mask", logical.role = "input"}) -> (tensor<16x8x1024x64xf16> {logical.name = "y"}) {
  %long = logical.attention %q, %k, %v : (tensor<16x8x1024x64xf16>, tensor<16x2x1536x64xf16>, tensor<16x2x1536x64xf16>) -> tensor<16x8x1024x64xf16>
  %masked = logical.attention %long, %k, %v, %mask {causal, past = 512} : (tensor<16x8x1024x64xf16>, tensor<16x2x1536x64xf16>, tensor<16x2x1536x64xf16>, tensor<1x1536xi1>) -> tensor<16x8x1024x64xf16>
  func.return %masked : tensor<16x8x1024x64xf16>
}
