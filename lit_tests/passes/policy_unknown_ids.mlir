// RUN: not aicf-opt %s -p 'apply-policy{policy="{groups: [[act, acct]]}"},assign-ids,fuse-elementwise' 2>&1 | filecheck %s --check-prefix=GROUP
// RUN: not aicf-opt %s -p 'apply-policy{policy="{kernels: {acct: reference.body}}"},assign-ids,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=KERNEL

// Ids are checked by the passes that use them, when the ops have theirs.
// GROUP: error: groups[0]: no op has the id 'acct'; did you mean 'act'?
// KERNEL: error: kernels.acct: no group or kind has that name; did you mean 'act'
builtin.module attributes {aicf.target = #emit.target<"reference", "typed", {threads = 1 : i64}>} {
  func.func @f(%x: tensor<2xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2xf32> {logical.name = "y"}) {
    %act = logical.relu %x : tensor<2xf32>
    func.return %act : tensor<2xf32>
  }
}
