// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels,generate-kernels,schedule,decide-inplace,plan-memory,plan-capture' > %t.final
// RUN: aicf-opt %t.final -p 'raise-emit' | filecheck %s
// RUN: sed 's/same_stream = "one"/align = [[0, 64]]/' %t.final > %t.aligned
// RUN: not aicf-opt %t.aligned -p 'raise-emit' 2>&1 | filecheck %s --check-prefix=ALIGNED
// RUN: not aicf-opt %t.final -p 'raise-emit{pin=groups}' 2>&1 | filecheck %s --check-prefix=RECORDS
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{streams: 2}"},select-kernels,schedule' > %t.streams
// RUN: not aicf-opt %t.streams -p 'raise-emit' 2>&1 | filecheck %s --check-prefix=STREAMS

// What a policy can say of constraints becomes one: one stream in text order, and the record of the kernel. What it
// cannot say is refused.
// CHECK: aicf.execution = {{.*}}order = "text"
// CHECK-NOT: constraints
// ALIGNED: 'b' has the constraint align, and a policy says nothing of addresses; take it out of constraints first
// RECORDS: 'c' has the constraint max_workspace, and only a policy with the kernel's record keeps its workspace (pin=all); take it out of constraints first
// STREAMS: 'b' has the constraint same_stream, and a policy gives a number of streams, not the stream of an instruction; take it out of constraints first
emit.program @main attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>)
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>)
    constraints {same_stream = "one"}
  emit.resolved "add" id(0) name("c") src(["c"]) ins(%a, %b : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>)
    constraints {no_reorder, max_workspace = 0}
}
