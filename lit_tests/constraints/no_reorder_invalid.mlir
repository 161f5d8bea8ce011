// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'verify-order' | filecheck %s

// What comes before in the text ends before.
// CHECK: error: emit.resolved: 'b' keeps its place (no_reorder), but may start before 'a' ends; add an edge to 'b': after(["a" full])
emit.program @before attributes {phase = "scheduled"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>) constraints {no_reorder} stream(1) after([])
  emit.resolved "copy" id(8) name("d") src(["d"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["a" full, "b" full])
  emit.resolved "copy" id(8) name("e") src(["e"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>) stream(1) after(["b" full])
}

// -----

// What comes after starts after.
// CHECK: error: emit.resolved: 'a' keeps its place (no_reorder), but may end after 'b' starts; add an edge to 'b': after(["a" full])
emit.program @after attributes {phase = "scheduled"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) constraints {no_reorder} stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>) stream(1) after([])
  emit.resolved "copy" id(8) name("d") src(["d"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["a" full])
  emit.resolved "copy" id(8) name("e") src(["e"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>) stream(1) after(["b" full])
}

// -----

// Nothing starts early beside it.
// CHECK: error: emit.resolved: 'b' starts before 'a' ends, but one of them keeps its place (no_reorder); write after(["a" full])
emit.program @early attributes {phase = "scheduled"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) constraints {no_reorder} stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>) stream(1) after(["a" programmatic])
  emit.resolved "copy" id(8) name("d") src(["d"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["a" full])
  emit.resolved "copy" id(8) name("e") src(["e"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>) stream(1) after(["b" full])
}

// -----

// It has no value.
// CHECK: error: emit.resolved: instruction 'a': no_reorder has no value, got true; write no_reorder
emit.program @value attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {no_reorder = true}
}
