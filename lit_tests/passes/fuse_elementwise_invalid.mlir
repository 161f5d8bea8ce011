// RUN: not aicf-opt %s --split-input-file -p 'set-target{target="cuda:sm_90a"},fuse-elementwise' 2>&1 | filecheck %s

// An op that no kernel of the target runs is an error that says what keeps each from it.
// CHECK: error: no kernel of target cuda runs 'many.products' (logical.matmul): {{.*}}cuda.gemm_wgmma: warpgroup products take f16 and bf16 here, A is i16; {{.*}}cuda.gemm_simt: 70000 matrices are more than a grid has room for
func.func @many(%x : tensor<70000x4x4xi16> {logical.name = "x", logical.role = "input"}) -> (tensor<70000x4x4xi16> {logical.name = "y"}) {
  %e = logical.matmul %x, %x {aicf.id = "many.products", aicf.src = ["many.products"]} : (tensor<70000x4x4xi16>, tensor<70000x4x4xi16>) -> tensor<70000x4x4xi16>
  func.return %e : tensor<70000x4x4xi16>
}
