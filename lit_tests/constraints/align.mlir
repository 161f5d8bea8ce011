// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels,generate-kernels,schedule,decide-inplace,plan-memory,plan-capture,verify-emit,verify-order' | filecheck %s --check-prefixes=CHECK,SHARED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{memory: separate, inplace: false}"},select-kernels,generate-kernels,schedule,decide-inplace,plan-memory,plan-capture,verify-emit' | filecheck %s --check-prefixes=CHECK,SEPARATE
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels,generate-kernels,schedule,decide-inplace,plan-memory,plan-capture' > %t.once
// RUN: aicf-opt %t.once -p 'verify-emit' > %t.twice
// RUN: diff %t.once %t.twice

// `align = [[operand, bytes], ...]`, ins counted before outs: the slot of such an operand lies at a multiple of the bytes,
// and a direct input or output states them, against which the runtime checks callers' memory.
// CHECK: emit.bind input "x" binding(direct) align(128)
// CHECK: emit.bind output "y" binding(direct) :
// SHARED: emit.slot offset(64) size(64) align(64)
// SHARED: emit.slot offset(0) size(64) align(256)
// SEPARATE: emit.slot offset(0) size(64) align(64)
// SEPARATE: emit.slot offset(256) size(64) align(256)
// CHECK: constraints {may_alias = {{.*}}, align = {{\[\[}}0 : i64, 128 : i64], {{\[}}1 : i64, 256 : i64]]}
emit.program @main attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("first") src(["first"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>)
  emit.resolved "relu" id(1) name("second") src(["second"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>) constraints {align = [[0, 128], [1, 256]]}
  emit.resolved "add" id(0) name("sum") src(["sum"]) ins(%a, %b : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>)
}
