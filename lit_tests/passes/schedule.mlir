// RUN: aicf-opt %s -p 'schedule' | filecheck %s --check-prefixes=CHECK,ONE
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"streams\": 2}"},schedule' | filecheck %s --check-prefixes=CHECK,TWO
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"streams\": 2}"},schedule' > %t.once
// RUN: aicf-opt %t.once -p 'schedule' > %t.twice
// RUN: diff %t.once %t.twice

// ONE: emit.decision "schedule" ["diamond"] choice "4 instructions in text order on 1 stream" because "3 edges order every conflicting pair; instructions run one after the other"
// TWO: emit.decision "schedule" ["diamond"] choice "4 instructions in text order on 2 streams" because "3 edges order every conflicting pair; the policy allows 2 streams"
// CHECK: emit.decision "schedule" ["given"] choice "as written" because "every instruction states its stream"

// Two branches and their join. One stream: a chain. Two: the branches run side by side, the join waits for both, and
// what reads the result of the join does not wait again for the branches.
// CHECK-LABEL: emit.program @diamond attributes {phase = "scheduled"} {
// CHECK: name("left")
// CHECK: stream(0) after([])
// CHECK: name("right")
// ONE: stream(0) after(["left" full])
// TWO: stream(1) after([])
// CHECK: name("join")
// ONE: stream(0) after(["right" full])
// TWO: stream(0) after(["left" full, "right" full])
// CHECK: name("reader")
// CHECK: stream(0) after(["join" full])
emit.program @diamond attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  %c = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>)
  emit.resolved "relu" id(1) name("right") src(["right"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>)
  emit.resolved "add" id(0) name("join") src(["join"]) ins(%a, %b : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, arena>) outs(%c : !emit.buffer<8xf32, arena>)
  emit.resolved "add" id(0) name("reader") src(["reader"]) ins(%a, %c : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>)
}

// Write after read: the state is overwritten only after both readers of the old value have ended; and write after
// write: the second value follows the first.
// CHECK-LABEL: emit.program @state
// CHECK: name("keep")
// TWO: stream(0) after([])
// CHECK: name("show")
// TWO: stream(1) after([])
// CHECK: name("first")
// TWO: stream(0) after(["keep" full, "show" full])
// CHECK: name("second")
// TWO: stream(0) after(["first" full])
emit.program @state attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("keep") src(["keep"]) ins(%s : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>)
  emit.resolved "relu" id(1) name("show") src(["show"]) ins(%s : !emit.buffer<8xf32, bound>) outs(%z : !emit.buffer<8xf32, bound>)
  emit.resolved "copy" id(8) name("first") src(["first"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, bound>)
  emit.resolved "copy" id(8) name("second") src(["second"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%s : !emit.buffer<8xf32, bound>)
}

// Two instructions that fill the columns of one slot run side by side; who reads the left ones waits for one of them,
// who reads the rows for both.
// CHECK-LABEL: emit.program @columns
// CHECK: name("left")
// TWO: stream(0) after([])
// CHECK: name("right")
// TWO: stream(1) after([])
// CHECK: name("half")
// TWO: stream(0) after(["left" full])
// CHECK: name("rows")
// TWO: stream(1) after(["left" full, "right" full])
emit.program @columns attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<4x3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x6xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<4x3xf32, bound>
  %a = emit.slot : !emit.buffer<4x6xf32, arena>
  %left = emit.view %a offset(0) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  %right = emit.view %a offset(3) : !emit.buffer<4x6xf32, arena> to !emit.buffer<4x3xf32, arena, strides [6, 1]>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%left : !emit.buffer<4x3xf32, arena, strides [6, 1]>)
  emit.resolved "copy" id(8) name("right") src(["right"]) ins(%x : !emit.buffer<4x3xf32, bound>) outs(%right : !emit.buffer<4x3xf32, arena, strides [6, 1]>)
  emit.resolved "copy" id(8) name("half") src(["half"]) ins(%left : !emit.buffer<4x3xf32, arena, strides [6, 1]>) outs(%z : !emit.buffer<4x3xf32, bound>)
  emit.resolved "relu" id(1) name("rows") src(["rows"]) ins(%a : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>)
}

// No more streams than allowed: the third branch follows the stream that ended first, in order on it.
// CHECK-LABEL: emit.program @three
// CHECK: name("c")
// TWO: stream(0) after(["a" full])
emit.program @three attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %p = emit.bind output "p" : !emit.buffer<8xf32, bound>
  %q = emit.bind output "q" : !emit.buffer<8xf32, bound>
  %r = emit.bind output "r" : !emit.buffer<8xf32, bound>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%p : !emit.buffer<8xf32, bound>)
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%q : !emit.buffer<8xf32, bound>)
  emit.resolved "relu" id(1) name("c") src(["c"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%r : !emit.buffer<8xf32, bound>)
}

// Streams written by hand stay, programmatic edges included.
// CHECK-LABEL: emit.program @given attributes {phase = "scheduled"}
// CHECK: stream(3) after([])
// CHECK: stream(1) after(["a" programmatic])
emit.program @given attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("a") src(["a"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) stream(3) after([])
  emit.resolved "relu" id(1) name("b") src(["b"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(1) after(["a" programmatic])
}

// An only edge is programmatic where the source triggers and the successor waits inside, reading nothing before its
// wait but a weight that is never written. Any doubt makes it full: a join, a reader of an updated state, a kernel
// that does not say.
// CHECK-LABEL: emit.program @early
// CHECK: name("first")
// CHECK: name("second")
// ONE: stream(0) after(["first" programmatic])
// CHECK: name("careless")
// ONE: stream(0) after(["second" full])
// CHECK: name("silent")
// CHECK: stream(0) after(["careless" full])
// CHECK: name("last")
// ONE: stream(0) after(["silent" full])
emit.program @early attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %w = emit.bind param "w" : !emit.buffer<8xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  %c = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "add" id(0) name("first") src(["first"]) ins(%x, %w : !emit.buffer<8xf32, bound>, !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [1 : i64], triggers = true})
  emit.resolved "add" id(0) name("second") src(["second"]) ins(%a, %w : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, bound>) outs(%b : !emit.buffer<8xf32, arena>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [1 : i64], triggers = true})
  emit.resolved "add" id(0) name("careless") src(["careless"]) ins(%b, %s : !emit.buffer<8xf32, arena>, !emit.buffer<8xf32, bound>) outs(%c : !emit.buffer<8xf32, arena>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [1 : i64], triggers = true})
  emit.resolved "relu" id(1) name("silent") src(["silent"]) ins(%c : !emit.buffer<8xf32, arena>) outs(%s : !emit.buffer<8xf32, bound>) kernel("cuda.silent", {version = 1 : i64, determinism = "bitwise"})
  emit.resolved "relu" id(1) name("last") src(["last"]) ins(%c : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) kernel("cuda.early", {version = 1 : i64, determinism = "bitwise", early_reads = [], triggers = true})
}
