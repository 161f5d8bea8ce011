// RUN: aicf-opt %s -p 'verify-capture-safe' | filecheck %s

// Final, with a kernel, a body and a graph: it can be captured.
// CHECK: emit.program @p
emit.body @a.body {
^bb0(%v : tensor<3xf32>):
  %r = logical.relu %v : tensor<3xf32>
  emit.yield %r : tensor<3xf32>
}
emit.program @p attributes {phase = "final", arena_bytes = 0 : i64, graphs = [["a"]]} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>)
    body(@a.body) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) stream(0) after([])
}
