// RUN: aicf-opt %s -p 'plan-capture' | filecheck %s
// RUN: aicf-opt %s -p 'plan-capture' > %t.once
// RUN: aicf-opt %t.once -p 'plan-capture' > %t.twice
// RUN: diff %t.once %t.twice

// All instructions in one graph, in text order; a program without instructions has no graph.
// CHECK: emit.decision "plan-capture" ["p"] choice "one graph of 2 instructions" because "no instruction needs the host between two others"
// CHECK-NEXT: emit.decision "plan-capture" ["empty"] choice "no graph"
// CHECK: emit.program @p attributes {phase = "final", arena_bytes = 0 : i64, graphs = {{\[\[}}"b", "a"]]} {
emit.program @p attributes {phase = "planned", arena_bytes = 0 : i64} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>) stream(0) after(["b" full])
}
// CHECK: emit.program @empty attributes {phase = "final", arena_bytes = 0 : i64, graphs = []} {
emit.program @empty attributes {phase = "planned", arena_bytes = 0 : i64} {
}
