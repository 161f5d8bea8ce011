// RUN: not aicf-opt %s -p schedule 2>&1 | filecheck %s

// Stated streams and edges are kept as they are, and the edges of the others cannot be known without them.
// CHECK: error: 'b' states its stream, 'a' does not: state stream and edges of all instructions, or of none
emit.program @half attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>)
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after([])
}
