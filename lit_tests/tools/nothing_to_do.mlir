// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,lower-logical,select-kernels,schedule,differentiate' -o %t.lowered.mlir 2>&1 | filecheck %s --check-prefix=UNGROUPED
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" until=schedule}' -o %t.scheduled.mlir
// RUN: aicf-opt %t.scheduled.mlir -p schedule,decide-inplace,fuse-epilogues -o %t.inplace.mlir 2>&1 | filecheck %s --check-prefix=SCHEDULED
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' -o %t.final.mlir
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' 2>&1 | filecheck %s --check-prefix=QUIET
// RUN: aicf-opt %t.final.mlir -p fuse-epilogues,select-kernels,plan-memory,verify-emit,print-cost -o %t.again.mlir 2>&1 | filecheck %s --check-prefix=FINAL
// RUN: not aicf-opt %t.final.mlir -p 'set-target{target="cpu:x86-64-v4"}' 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not aicf-opt %t.final.mlir -p apply-policy 2>&1 | filecheck %s --check-prefix=POLICY
// RUN: not aicf-opt %t.final.mlir -p aicf-inference 2>&1 | filecheck %s --check-prefix=PIPELINE
// RUN: aicf-opt %t.final.mlir -p 'raise-emit,aicf-inference{start=lowered}' 2>&1 | filecheck %s --check-prefix=RAISED

// A pass that is named and finds nothing that it works on says so, with the way out if there is one. The program is
// printed all the same. Passes inside a named pipeline say nothing of that kind.
// QUIET-NOT: remark
// QUIET: phase = "final"
// UNGROUPED: nothing_to_do.mlir:{{[0-9]+}}:1: remark: select-kernels: nothing to do: it works on emit.group or emit.program, and the module has none; run materialize-views,fuse-elementwise first
// UNGROUPED-NEXT: remark: schedule: nothing to do: it works on emit.program, and the module has none; run the passes up to lower-to-emit first
// UNGROUPED-NEXT: remark: differentiate: nothing to do: it works on logical.gradient, and the module has none
// UNGROUPED-NOT: {{.}}

// The order is decided; what comes next is not.
// SCHEDULED: remark: schedule: nothing to do: all programs of the module are scheduled already
// SCHEDULED-NEXT: remark: fuse-epilogues: nothing to do: it works on func.func, and the module has none; run raise-emit first
// SCHEDULED-NOT: {{.}}

// A final program is not changed; checks and prints work on it.
// FINAL: remark: fuse-epilogues: nothing to do: the program is final, every decision in it is made; raise-emit gives back the functions that passes change
// FINAL-NEXT: remark: select-kernels: nothing to do: the program is final
// FINAL-NEXT: remark: plan-memory: nothing to do: the program is final{{.*}}
// FINAL-NOT: {{.}}

// What would contradict it is an error.
// TARGET: error: the program is final, every decision in it is made for cpu:x86-64-v3; run raise-emit first to decide it again
// POLICY: error: the program is final, every decision in it is made: a policy changes nothing of it; run raise-emit first
// PIPELINE: error: the program is final, every decision in it is made; run raise-emit first, which gives back its functions
// RAISED: phase = "final"
func.func @rows(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2x3xf32> {logical.name = "y"}) {
  %y = logical.softmax %x {axis = 1} : tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
