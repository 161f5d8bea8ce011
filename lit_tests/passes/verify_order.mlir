// RUN: aicf-opt %s -p 'verify-order' | filecheck %s

// Everything that conflicts is ordered, directly, through others, or by a programmatic edge; slots that share bytes
// are apart in time; two instructions write apart bytes of one output without an edge.
// CHECK: emit.program @fine
emit.program @fine attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<6xf32, bound>
  %low = emit.view %y offset(0) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  %high = emit.view %y offset(3) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  %a = emit.slot offset(0) size(64) align(64) : !emit.buffer<3xf32, arena>
  %b = emit.slot offset(0) size(64) align(64) : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%low : !emit.buffer<3xf32, bound>) stream(0) after(["a" programmatic])
  emit.resolved "relu" id(1) name("d") src(["d"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%b : !emit.buffer<3xf32, arena>) stream(0) after(["b" full])
  emit.resolved "relu" id(1) name("c") src(["c"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%high : !emit.buffer<3xf32, bound>) stream(1) after([])
}

// Before it is scheduled a program has no edges to check: the text is its order.
// CHECK: emit.program @bufferized
emit.program @bufferized attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>)
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>)
}

// Columns of one slot are apart though their ranges interleave: two streams fill them, and who reads the rows waits for
// both.
// CHECK: emit.program @columns
emit.program @columns attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x6xf32, bound>
  %a = emit.slot : !emit.buffer<4x6xf32, arena>
  %left = emit.view %a offset(0) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  %right = emit.view %a offset(3) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%left : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(0) after([])
  emit.resolved "copy" id(8) name("right") src(["right"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%right : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(1) after([])
  emit.resolved "relu" id(1) name("rows") src(["rows"]) ins(%a : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>) stream(0) after(["left" full, "right" full])
}

// Outputs that are read again: a result of another instruction, in parts and whole, updated in place; workspace that is
// written before it is read; padding between rows that nobody reads.
// CHECK: emit.program @legal
emit.program @legal attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<6xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<6xf32, bound>
  %u = emit.bind output "u" : !emit.buffer<3xf32, bound>
  %low = emit.view %y offset(0) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  %high = emit.view %y offset(3) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  %w = emit.slot : !emit.buffer<3xf32, arena>
  %rows = emit.slot : !emit.buffer<3x4xf32, arena>
  %column = emit.view %rows offset(0) : !emit.buffer<3x4xf32, arena> to !emit.buffer<3xf32, arena, strides [4]>
  emit.resolved "relu" id(1) name("low") src(["low"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%low : !emit.buffer<3xf32, bound>) ws(%w : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("again") src(["again"]) ins(%low : !emit.buffer<3xf32, bound>) outs(%high : !emit.buffer<3xf32, bound>) stream(0) after(["low" full])
  emit.resolved "add" id(0) name("update") src(["update"]) ins(%high, %x : !emit.buffer<3xf32, bound>, !emit.buffer<3xf32, bound>) outs(%high : !emit.buffer<3xf32, bound>) stream(0) after(["again" full])
  emit.resolved "relu" id(1) name("all") src(["all"]) ins(%y : !emit.buffer<6xf32, bound>) outs(%z : !emit.buffer<6xf32, bound>) stream(0) after(["update" full])
  emit.resolved "relu" id(1) name("over") src(["over"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%w : !emit.buffer<3xf32, arena>) stream(0) after(["all" full])
  emit.resolved "relu" id(1) name("column") src(["column"]) ins(%w : !emit.buffer<3xf32, arena>) outs(%column : !emit.buffer<3xf32, arena, strides [4]>) stream(0) after(["over" full])
  emit.resolved "relu" id(1) name("rows") src(["rows"]) ins(%column : !emit.buffer<3xf32, arena, strides [4]>) outs(%u : !emit.buffer<3xf32, bound>) stream(0) after(["column" full])
}
