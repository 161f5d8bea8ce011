// RUN: not aicf-opt %s --split-input-file -p 'set-target{target="cuda:sm_90a"},fuse-elementwise' 2>&1 | filecheck %s

// An op that no kernel of the target runs is an error that says which element types do.
// CHECK: error: no kernel of target cuda runs 'small.abs' (logical.abs): {{.*}}element type i16 is not supported on cuda, only {{.*}}
func.func @small(%x : tensor<4xi16> {logical.name = "x", logical.role = "input"}) -> (tensor<4xi16> {logical.name = "y"}) {
  %e = logical.abs %x {aicf.id = "small.abs", aicf.src = ["small.abs"]} : tensor<4xi16>
  func.return %e : tensor<4xi16>
}
