// RUN: not aicf-opt %s -p 'apply-policy{policy="{streams: 2}"}' 2>&1 | filecheck %s

// Which kernels a policy may name depends on the target.
// CHECK: error: the module has no target; run set-target{target=...} first
func.func @f(%x: tensor<2xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2xf32> {logical.name = "y"}) {
  %y = logical.relu %x : tensor<2xf32>
  func.return %y : tensor<2xf32>
}
