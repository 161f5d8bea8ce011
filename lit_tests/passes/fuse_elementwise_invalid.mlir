// RUN: not aicf-opt %s --split-input-file -p 'set-target{target="cuda:sm_90a"},fuse-elementwise' 2>&1 | filecheck %s

// An op that no kernel of the target runs is an error that says which element types each takes.
// CHECK: error: no kernel of target cuda runs 'small.product' (logical.matmul): {{.*}}cuda.gemm_simt: multiplies f32, f64, i32, i64, A is i16
func.func @small(%x : tensor<4x4xi16> {logical.name = "x", logical.role = "input"}) -> (tensor<4x4xi16> {logical.name = "y"}) {
  %e = logical.matmul %x, %x {aicf.id = "small.product", aicf.src = ["small.product"]} : (tensor<4x4xi16>, tensor<4x4xi16>) -> tensor<4x4xi16>
  func.return %e : tensor<4x4xi16>
}
