// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{streams: 3}"},schedule,verify-order' | filecheck %s

// `same_stream`: instructions with the same name run on one stream. "c" alone would open a third one.
// CHECK: name("a")
// CHECK: constraints {same_stream = "copies"}
// CHECK: stream(0) after([])
// CHECK: name("b")
// CHECK: stream(1) after([])
// CHECK: name("c")
// CHECK: stream(0) after(["a" full])
emit.program @main attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" binding(direct) : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  %c = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) constraints {same_stream = "copies"}
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>)
  emit.resolved "relu" id(1) name("c") src(["c"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%c : !emit.buffer<8xf32, arena>) constraints {same_stream = "copies"}
  emit.resolved "add" id(0) name("d") src(["d"]) ins(%a, %c : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>)
  emit.resolved "copy" id(8) name("e") src(["e"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>)
}
