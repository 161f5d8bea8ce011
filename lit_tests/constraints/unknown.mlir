// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// A constraint that nobody enforces is refused.
// CHECK: error: emit.resolved: instruction 'a': unknown constraint 'no_reordering'; did you mean 'no_reorder'?
emit.program @close attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {no_reordering}
}

// -----

// CHECK: error: emit.resolved: instruction 'a': unknown constraint 'priority'; there are may_alias, align, no_reorder, same_stream, max_workspace
emit.program @far attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {priority = 1}
}
