// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise' 2>&1 | filecheck %s --check-prefix=IDS
// RUN: not aicf-opt %s -p 'fuse-elementwise' 2>&1 | filecheck %s --check-prefix=TARGET

// Groups are named after ops, and kernels belong to a target: both must be there.
// IDS: error: logical.exp has no aicf.id; run assign-ids before fusing
// TARGET: error: the module has no target; run set-target{target=...} first
func.func @f(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %e = logical.exp %x : tensor<4xf32>
  func.return %e : tensor<4xf32>
}
