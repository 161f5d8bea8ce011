// RUN: not aicf-opt %s -p 'apply-policy{policy="{groups: [[act, acct]]}"},assign-ids,fuse-elementwise' 2>&1 | filecheck %s --check-prefix=GROUP
// RUN: not aicf-opt %s -p 'apply-policy{policy="{kernels: {acct: reference.body}}"},assign-ids,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=KERNEL
// RUN: not aicf-opt %s -p 'apply-policy{policy="{records: {acct: {threads: 1}}}"},assign-ids,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=RECORD
// RUN: not aicf-opt %s -p 'apply-policy{policy="{records: {act: {tile: 6}}}"},assign-ids,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=ENTRY
// RUN: not aicf-opt %s -p 'apply-policy{policy="{streams_of: {g: 2}}"},assign-ids,fuse-elementwise,select-kernels,generate-kernels,lower-to-emit,schedule' 2>&1 | filecheck %s --check-prefix=PROGRAM
// RUN: not aicf-opt %s -p 'apply-policy{policy="{kernels: {sum: reference.body}}"},assign-ids,fuse-elementwise,select-kernels' 2>&1 | filecheck %s --check-prefix=FAR

// Ids are checked by the passes that use them, when the ops have theirs.
// GROUP: error: groups[0]: no op has the id 'acct'; did you mean 'act'?
// KERNEL: error: kernels.acct: no group or kind has that name; did you mean 'act'
// FAR: error: kernels.sum: no group or kind has that name; groups: act; kinds: {{.*}}attention, {{.*}}generated
// RECORD: error: records.acct: no group has that name; did you mean 'act'
// ENTRY: error: records.act.tile: 'reference.body' does not offer 6; it records nothing of that name; drop records.act to leave the record to the kernel
// PROGRAM: error: streams_of.g: no program has that name; it has: f
builtin.module attributes {aicf.target = #emit.target<"reference", "typed", {threads = 1 : i64}>} {
  func.func @f(%x: tensor<2xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2xf32> {logical.name = "y"}) {
    %act = logical.relu %x : tensor<2xf32>
    func.return %act : tensor<2xf32>
  }
}
