// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'verify-order' | filecheck %s

// A hand-deleted edge: the reader may run before the value is there.
// CHECK: error: emit.resolved: 'a' writes slot %a that 'b' may read at the same time; add an edge: after(["a" full]) or the other way round
emit.program @missing_edge attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
}

// -----

// Two writers of one output.
// CHECK: error: emit.resolved: 'a' writes output 'y' that 'b' may write at the same time
emit.program @two_writers attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(1) after([])
}

// -----

// A state is overwritten while its old value may still be read.
// CHECK: error: emit.resolved: 'write' writes state 's' that 'read' may read at the same time
emit.program @state attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%s : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "copy" id(8) name("write") src(["write"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%s : !emit.buffer<3xf32, bound>) stream(1) after([])
}

// -----

// Definitions come first.
// CHECK: error: emit.resolved{{.*}}%late is used before it{{.*}}defin
emit.program @definition attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%late : !emit.buffer<3xf32, arena>)
  %late = emit.slot : !emit.buffer<3xf32, arena>
}

// -----

// Nobody wrote the slot.
// CHECK: error: emit.resolved: 'a' reads slot %a before anything wrote it
emit.program @unwritten attributes {phase = "scheduled"} {
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
}

// -----

// The only writer comes later.
// CHECK: error: emit.resolved: 'a' reads slot %a before anything wrote it
emit.program @written_later attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after(["a" full])
}

// -----

// An output that no instruction writes.
// CHECK: error: emit.bind: output 'y' of @forgotten is never written
emit.program @forgotten attributes {phase = "scheduled"} {
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
}

// -----

// An edge to something later: the text must be a topological order.
// CHECK: error: {{.*}}instruction 'a' waits for 'b', which comes later in the text; the text is one topological order
emit.program @backwards attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["b" full])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>) stream(0) after([])
}

// -----

// An edge to nothing.
// CHECK: error: {{.*}}instruction 'a' waits for 'ghost', which does not exist
emit.program @ghost attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["ghost" full])
}

// -----

// A hand-edited offset: two values that are alive together lie on each other.
// CHECK: error: {{.*}}slots %b and %a share bytes of the arena but are alive together: 'c' and 'c' still use them; run plan-memory again or add the missing edge
emit.program @overlap attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot offset(0) size(64) align(4) : !emit.buffer<3xf32, arena>
  %b = emit.slot offset(8) size(12) align(4) : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%b : !emit.buffer<3xf32, arena>) stream(0) after(["a" full])
  emit.resolved "add" id(0) name("c") src(["c"]) ins(%a, %b : !emit.buffer<3xf32, arena>, !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["b" full])
}

// -----

// Shared bytes on two streams, where only the text order keeps them apart.
// CHECK: error: {{.*}}slots %b and %a share bytes of the arena but are alive together: 'r2' and 'l2' still use them
emit.program @streams attributes {phase = "planned", arena_bytes = 64 : i64} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  %a = emit.slot offset(0) size(64) align(64) : !emit.buffer<3xf32, arena>
  %b = emit.slot offset(0) size(64) align(64) : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("l1") src(["l1"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("l2") src(["l2"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["l1" full])
  emit.resolved "relu" id(1) name("r1") src(["r1"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%b : !emit.buffer<3xf32, arena>) stream(1) after([])
  emit.resolved "relu" id(1) name("r2") src(["r2"]) ins(%b : !emit.buffer<3xf32, arena>) outs(%z : !emit.buffer<3xf32, bound>) stream(1) after(["r1" full])
}

// -----

// An early start of a kernel that does not wait inside would read what is not there yet.
// CHECK: error: {{.*}}'b' starts before 'a' ends, but 'cuda.silent' does not wait inside; write after(["a" full])
emit.program @no_wait attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [], triggers = true}) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) kernel("cuda.silent", {version = 1 : i64, determinism = "bitwise"}) stream(0) after(["a" programmatic])
}

// -----

// An early start after a kernel that never says when others may start.
// CHECK: error: {{.*}}'b' starts before 'a' ends, but 'cuda.silent' lets nothing start early; write after(["a" full])
emit.program @no_trigger attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) kernel("cuda.silent", {version = 1 : i64, determinism = "bitwise", early_reads = []}) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [], triggers = true}) stream(0) after(["a" programmatic])
}

// -----

// What a kernel reads before its wait must never be written: a slot always is.
// CHECK: error: {{.*}}'b' reads slot %a before it waits for 'a', and the program writes that; write after(["a" full])
emit.program @reads_too_early attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [], triggers = true}) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [0 : i64], triggers = true}) stream(0) after(["a" programmatic])
}

// -----

// Half of the slot is written only after the read.
// CHECK: error: {{.*}}'read' reads part of slot %a before anything wrote it
emit.program @half attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<2xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4xf32, bound>
  %a = emit.slot : !emit.buffer<4xf32, arena>
  %low = emit.view %a offset(0) : !emit.buffer<4xf32, arena> to !emit.buffer<2xf32, arena>
  %high = emit.view %a offset(2) : !emit.buffer<4xf32, arena> to !emit.buffer<2xf32, arena>
  emit.resolved "relu" id(1) name("low") src(["low"]) ins(%x : !emit.buffer<2xf32, bound>) outs(%low : !emit.buffer<2xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%a : !emit.buffer<4xf32, arena>) outs(%y : !emit.buffer<4xf32, bound>) stream(0) after(["low" full])
  emit.resolved "relu" id(1) name("high") src(["high"]) ins(%x : !emit.buffer<2xf32, bound>) outs(%high : !emit.buffer<2xf32, arena>) stream(0) after(["read" full])
}

// -----

// Every second element is written; the ranges alone do not tell.
// CHECK: error: {{.*}}'read' reads part of slot %a before anything wrote it
emit.program @comb attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<2xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4xf32, bound>
  %a = emit.slot : !emit.buffer<4xf32, arena>
  %even = emit.view %a offset(0) : !emit.buffer<4xf32, arena> to !emit.buffer<2xf32, arena, strides [2]>
  emit.resolved "relu" id(1) name("even") src(["even"]) ins(%x : !emit.buffer<2xf32, bound>) outs(%even : !emit.buffer<2xf32, arena, strides [2]>) stream(0) after([])
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%a : !emit.buffer<4xf32, arena>) outs(%y : !emit.buffer<4xf32, bound>) stream(0) after(["even" full])
}

// -----

// A view that runs backwards lies below its first element, where the other stream writes.
// CHECK: error: {{.*}}'late' writes slot %a that 'back' may read at the same time
emit.program @backwards_view attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<2xf32, bound>
  %a = emit.slot : !emit.buffer<4xf32, arena>
  %low = emit.view %a offset(0) : !emit.buffer<4xf32, arena> to !emit.buffer<1xf32, arena>
  %back = emit.view %a offset(1) : !emit.buffer<4xf32, arena> to !emit.buffer<2xf32, arena, strides [-1]>
  emit.resolved "relu" id(1) name("all") src(["all"]) ins(%x : !emit.buffer<4xf32, bound>) outs(%a : !emit.buffer<4xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("back") src(["back"]) ins(%back : !emit.buffer<2xf32, arena, strides [-1]>) outs(%y : !emit.buffer<2xf32, bound>) stream(0) after(["all" full])
  emit.resolved "relu" id(1) name("late") src(["late"]) ins(%low : !emit.buffer<1xf32, arena>) outs(%low : !emit.buffer<1xf32, arena>) stream(1) after(["all" full])
}

// -----

// Half of an output is left as it was.
// CHECK: error: emit.bind: part of output 'y' of @half_output is never written
emit.program @half_output attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<2xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4xf32, bound>
  %high = emit.view %y offset(2) : !emit.buffer<4xf32, bound> to !emit.buffer<2xf32, bound>
  emit.resolved "relu" id(1) name("high") src(["high"]) ins(%x : !emit.buffer<2xf32, bound>) outs(%high : !emit.buffer<2xf32, bound>) stream(0) after([])
}

// -----

// The last column is left out: a hole in every row.
// CHECK: error: {{.*}}'rows' reads part of slot %a before anything wrote it
emit.program @hole attributes {phase = "scheduled"} {
  %narrow = emit.bind input "n" : !emit.buffer<4x2xf32, bound>
  %x = emit.bind input "x" : !emit.buffer<4x3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x6xf32, bound>
  %a = emit.slot : !emit.buffer<4x6xf32, arena>
  %left = emit.view %a offset(0) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  %right = emit.view %a offset(3) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x2xf32, arena, strides [6, 1]>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%left : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(0) after([])
  emit.resolved "copy" id(8) name("right") src(["right"]) ins(%narrow : !emit.buffer<4x2xf32, bound>) outs(%right : !emit.buffer<4x2xf32, arena, strides [6, 1]>) stream(1) after([])
  emit.resolved "relu" id(1) name("rows") src(["rows"]) ins(%a : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>) stream(0) after(["left" full, "right" full])
}

// -----

// All columns are written, the right ones by an instruction that the reader does not wait for.
// CHECK: error: {{.*}}'right' writes slot %a that 'rows' may read at the same time
emit.program @late_columns attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x6xf32, bound>
  %a = emit.slot : !emit.buffer<4x6xf32, arena>
  %left = emit.view %a offset(0) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  %right = emit.view %a offset(3) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%left : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(0) after([])
  emit.resolved "copy" id(8) name("right") src(["right"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%right : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(1) after([])
  emit.resolved "relu" id(1) name("rows") src(["rows"]) ins(%a : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>) stream(0) after(["left" full])
}

// -----

// The columns of two streams have one in common.
// CHECK: error: {{.*}}'left' writes slot %a that 'right' may write at the same time
emit.program @shared_column attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x6xf32, bound>
  %a = emit.slot : !emit.buffer<4x6xf32, arena>
  %left = emit.view %a offset(0) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  %right = emit.view %a offset(2) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%left : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(0) after([])
  emit.resolved "copy" id(8) name("right") src(["right"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%right : !emit.buffer<4x3xf32, arena, strides [6, 1]>) stream(1) after([])
  emit.resolved "relu" id(1) name("rows") src(["rows"]) ins(%a : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>) stream(0) after(["left" full, "right" full])
}

// -----

// An output is memory of the caller: before an instruction writes it, anything is there.
// CHECK: error: emit.resolved: 'b' reads output 'y' before anything wrote it; 'a' writes it only later: move 'a' before it
emit.program @output_read_first attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%y : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["b" full])
}

// -----

// An output that is read and nobody writes.
// CHECK: error: emit.resolved: 'b' reads output 'y' before anything wrote it; add an instruction that writes it, or read another buffer
emit.program @output_never_written attributes {phase = "scheduled"} {
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%y : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>) stream(0) after([])
}

// -----

// Of an output one half is written when all of it is read.
// CHECK: error: emit.resolved: 'read' reads part of output 'y' before anything wrote it; 'high' writes it only later: move 'high' before it
emit.program @half_output attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<6xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<6xf32, bound>
  %low = emit.view %y offset(0) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  %high = emit.view %y offset(3) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("low") src(["low"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%low : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%y : !emit.buffer<6xf32, bound>) outs(%z : !emit.buffer<6xf32, bound>) stream(0) after(["low" full])
  emit.resolved "relu" id(1) name("high") src(["high"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%high : !emit.buffer<3xf32, bound>) stream(0) after(["read" full])
}

// -----

// The other half is written than the one that is read.
// CHECK: error: emit.resolved: 'read' reads output 'y' before anything wrote it
emit.program @other_half attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<6xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  %low = emit.view %y offset(0) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  %high = emit.view %y offset(3) : !emit.buffer<6xf32, bound> to !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("low") src(["low"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%low : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%high : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>) stream(0) after(["low" full])
  emit.resolved "relu" id(1) name("late") src(["late"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%high : !emit.buffer<3xf32, bound>) stream(0) after(["read" full])
}

// -----

// An update in place of what nobody wrote.
// CHECK: error: emit.resolved: 'update' reads output 'y' before anything wrote it; add an instruction that writes it, or read another buffer
emit.program @update_first attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  emit.resolved "add" id(0) name("update") src(["update"]) ins(%y, %x : !emit.buffer<3xf32, bound>, !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
}

// -----

// What was workspace holds no value.
// CHECK: error: emit.resolved: 'read' reads slot %w, which was workspace of 'a'; give 'a' a slot of its own for it
emit.program @workspace_read attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  %w = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) ws(%w : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%w : !emit.buffer<3xf32, arena>) outs(%z : !emit.buffer<3xf32, bound>) stream(0) after(["a" full])
}

// -----

// A value that was workspace since it was written.
// CHECK: error: emit.resolved: 'read' reads part of slot %w, which was workspace of 'a'
emit.program @clobbered attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<6xf32, bound>
  %w = emit.slot : !emit.buffer<6xf32, arena>
  %low = emit.view %w offset(0) : !emit.buffer<6xf32, arena> to !emit.buffer<3xf32, arena>
  %high = emit.view %w offset(3) : !emit.buffer<6xf32, arena> to !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("l") src(["l"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%low : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("h") src(["h"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%high : !emit.buffer<3xf32, arena>) stream(0) after(["l" full])
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) ws(%low : !emit.buffer<3xf32, arena>) stream(0) after(["h" full])
  emit.resolved "relu" id(1) name("read") src(["read"]) ins(%w : !emit.buffer<6xf32, arena>) outs(%z : !emit.buffer<6xf32, bound>) stream(0) after(["a" full])
}

// -----

// An output that is workspace at last.
// CHECK: error: emit.bind: part of output 'y' of @workspace_at_last is never written
emit.program @workspace_at_last attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>) ws(%y : !emit.buffer<3xf32, bound>) stream(0) after(["a" full])
}

// -----

// What @prepare makes is empty until it makes it.
// CHECK: error: emit.resolved: 'b' reads derived 'd' before anything wrote it
emit.program @prepare attributes {phase = "scheduled"} {
  %p = emit.bind param "p" : !emit.buffer<3xf32, bound>
  %d = emit.bind derived "d" : !emit.buffer<3xf32, const>
  %e = emit.bind derived "e" : !emit.buffer<3xf32, const>
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%d : !emit.buffer<3xf32, const>) outs(%e : !emit.buffer<3xf32, const>) stream(0) after([])
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%p : !emit.buffer<3xf32, bound>) outs(%d : !emit.buffer<3xf32, const>) stream(0) after(["b" full])
}

// -----

// Before it is scheduled the text of a program is its order.
// CHECK: error: emit.resolved: 'b' reads output 'y' before anything wrote it; 'a' writes it only later: move 'a' before it
emit.program @bufferized_read_first attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%y : !emit.buffer<3xf32, bound>) outs(%z : !emit.buffer<3xf32, bound>)
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%y : !emit.buffer<3xf32, bound>)
}
