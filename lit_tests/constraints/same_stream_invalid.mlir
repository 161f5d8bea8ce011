// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'schedule,verify-order' | filecheck %s

// Streams that were written by hand obey it as well.
// CHECK: error: emit.resolved: 'b' runs on stream 1, 'a' of the same group "copies" (same_stream) on stream 0; state one stream for both, or leave streams and edges to schedule
emit.program @apart attributes {phase = "scheduled"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) constraints {same_stream = "copies"} stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>) constraints {same_stream = "copies"} stream(1) after([])
  emit.resolved "copy" id(8) name("d") src(["d"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["a" full])
  emit.resolved "copy" id(8) name("e") src(["e"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>) stream(1) after(["b" full])
}

// -----

// A group has a name.
// CHECK: error: emit.resolved: instruction 'a': same_stream is the name of a group of instructions, got 1 : i64
emit.program @value attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {same_stream = 1}
}
