// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'verify-emit,plan-memory' | filecheck %s

// Alignment is a power of two that every arena begins at a multiple of.
// CHECK: error: emit.resolved: instruction 'a': align of operand 1 is a power of two up to 256, got 48
emit.program @odd attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {align = [[1, 48]]}
}

// -----

// Operands that there are.
// CHECK: error: emit.resolved: instruction 'a': align names operand 2; it has 1 ins and 1 outs, counted together
emit.program @number attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {align = [[2, 64]]}
}

// -----

// Pairs of numbers.
// CHECK: error: emit.resolved: instruction 'a': align is an array of [operand, bytes] pairs of i64, ins counted before outs
emit.program @pairs attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {align = 64}
}

// -----

// No placement of a slot aligns what begins in its middle.
// CHECK: error: emit.resolved: instruction 'a' (from a): operand 0 must be aligned to 64 bytes, but it begins 4 bytes into its buffer, and no address of that makes both multiples; copy it to a slot of its own first
emit.program @middle attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) : !emit.buffer<9xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  %v = emit.view %x offset(1) : !emit.buffer<9xf32, bound> to !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%v : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {align = [[0, 64]]}
}

// -----

// Weights lie where their owner has them.
// CHECK: error: emit.resolved: instruction 'a' (from a): operand 0 must be aligned to 64 bytes, but it is param 'w', which lies where its owner has it; copy it to a slot first, or drop the constraint
emit.program @weights attributes {phase = "bufferized"} {
  %w = emit.bind param "w" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%w : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {align = [[0, 64]]}
}

// -----

// A planned program gives it.
// CHECK: error: emit.resolved: instruction 'a' (from a): operand 0 must be aligned to 64 bytes, its input 'x' states 16; write align(64), or run plan-memory again
emit.program @planned attributes {phase = "planned", arena_bytes = 0 : i64} {
  %x = emit.bind input "x" binding(direct) align(16) : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" binding(direct) : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) constraints {align = [[0, 64]]} stream(0) after([])
}
