// RUN: not aicf-opt %s -p 'verify-capture-safe' 2>&1 | filecheck %s

// Every blocker of every program with its fix, in one error.
// CHECK: error: not capture-safe: @early is scheduled, not final: run the passes up to plan-capture; 'a' of @late has no kernel record: run select-kernels; 'a' of @late has no body: give it one, or a kind whose body is known; input 'x' of @late has no binding: add binding(direct); output 'z' of @late has no binding: add binding(direct); the graphs of @late are not its instructions in text order: run plan-capture again
emit.program @early attributes {phase = "scheduled"} {
}
emit.program @late attributes {phase = "final", arena_bytes = 0 : i64, graphs = [["b"], ["a"]]} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>)
    body(@b.body) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) stream(0) after(["a" full])
}
emit.body @b.body {
^bb0(%v : tensor<3xf32>):
  %r = logical.relu %v : tensor<3xf32>
  emit.yield %r : tensor<3xf32>
}
