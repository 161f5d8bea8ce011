// RUN: aicf-opt %s -p 'decide-inplace' | filecheck %s
// RUN: aicf-opt %s -p 'decide-inplace,plan-memory,verify-emit,verify-order' > %t
// RUN: aicf-opt %t -p 'decide-inplace' > %t.twice
// RUN: diff %t %t.twice
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{inplace: false}"},decide-inplace' | filecheck %s --check-prefix=APART

// CHECK: emit.decision "decide-inplace" ["decay", "s"] choice "write 's' in place" because "every other reader of the old value ends before, and the kernel reads each element before it writes it" rejected {copy = "32 bytes through a slot of their own"}
// CHECK-NEXT: emit.decision "decide-inplace" ["s.update", "s"] choice "keep the copy" because "'late' reads the old value, and may run after '{{.*}}' writes the new one"
// CHECK-NEXT: emit.decision "decide-inplace" ["s.update", "s"] choice "keep the copy" because "'{{.*}}' reads the old value, and its kernel cpu.generated may not overwrite what it reads"
// CHECK-NEXT: emit.decision "decide-inplace" ["s.update", "s"] choice "keep the copy" because "the new value is part of a larger buffer"
// CHECK-NEXT: emit.decision "decide-inplace" ["a.update", "a"] choice "keep the copy" because "'to_b' reads the old value, and may run after '{{.*}}' writes the new one"
// CHECK-NEXT: emit.decision "decide-inplace" ["to_b", "b"] choice "write 'b' in place"
// CHECK-NEXT: emit.decision "decide-inplace" ["middle"] choice "result 0 overwrites operand 0" because "nothing else uses the operand afterwards; saves 32 bytes"
// CHECK-NEXT: emit.decision "decide-inplace" ["middle"] choice "a slot of its own" because "'other' uses operand 0 too, and may run later"
// CHECK-NEXT: emit.decision "decide-inplace" ["middle"] choice "a slot of its own" because "'side' uses operand 0 too, and may run later"
// CHECK-NEXT: emit.decision "decide-inplace" ["two"] choice "result 0 overwrites operand 0"
// CHECK-NEXT: emit.decision "decide-inplace" ["three"] choice "result 0 overwrites operand 0"
// CHECK-NEXT: }

// APART: emit.decision "decide-inplace" ["state"] choice "every result has memory of its own" because "in-place updates are off by policy (inplace)"
// APART-NOT: overwrites
// APART: name("s.update")

// The new value of a state is computed straight into it: the copy, its body and its slot go, its reader reads the
// bind, and what waited for the copy waits for what the copy waited for.
// CHECK-LABEL: emit.program @state attributes {phase = "inplace"} {
// CHECK-NEXT: %x = emit.bind input
// CHECK-NEXT: %s = emit.bind state "s" updated
// CHECK-NEXT: %y = emit.bind output
// CHECK-NEXT: emit.resolved "add" id(0) name("decay") src(["decay"])
// CHECK-NEXT:   ins(%s, %x : {{.*}}) outs(%s : !emit.buffer<8xf32, bound>)
// CHECK: emit.resolved "relu" id(1) name("show")
// CHECK-NEXT:   ins(%s : !emit.buffer<8xf32, bound>)
// CHECK:   stream(0) after(["decay" full])
// CHECK-NOT: emit.body @state.copy
emit.body @state.copy {
^bb0(%v : tensor<8xf32>):
  emit.yield %v : tensor<8xf32>
}
emit.program @state attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %n = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "add" id(0) name("decay") src(["decay"]) ins(%s, %x : !emit.buffer<8xf32, bound>, !emit.buffer<8xf32, bound>) outs(%n : !emit.buffer<8xf32, arena>)
    constraints {may_alias = [[0 : i64, 0 : i64], [0 : i64, 1 : i64]]} stream(0) after([])
  emit.resolved "copy" id(8) name("s.update") src(["decay"]) ins(%n : !emit.buffer<8xf32, arena>) outs(%s : !emit.buffer<8xf32, bound>) body(@state.copy) stream(0) after(["decay" full])
  emit.resolved "relu" id(1) name("show") src(["show"]) ins(%n : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["s.update" full])
}

// Something reads the old value after the new one is there: the copy stays.
// CHECK-LABEL: emit.program @read_later
// CHECK: emit.resolved "copy" id(8) name("s.update")
emit.program @read_later attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %n = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("new") src(["new"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%n : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("late") src(["late"]) ins(%s : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) stream(1) after([])
  emit.resolved "copy" id(8) name("s.update") src(["new"]) ins(%n : !emit.buffer<8xf32, arena>) outs(%s : !emit.buffer<8xf32, bound>) stream(0) after(["new" full, "late" full])
}

// A kernel that reads elements again after it wrote others (a row sum, say) may not overwrite its operand.
// CHECK-LABEL: emit.program @may_not
// CHECK: emit.resolved "copy" id(8) name("s.update")
emit.program @may_not attributes {phase = "scheduled"} {
  %s = emit.bind state "s" updated : !emit.buffer<8xf32, bound>
  %n = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("new") src(["new"]) ins(%s : !emit.buffer<8xf32, bound>) outs(%n : !emit.buffer<8xf32, arena>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) stream(0) after([])
  emit.resolved "copy" id(8) name("s.update") src(["new"]) ins(%n : !emit.buffer<8xf32, arena>) outs(%s : !emit.buffer<8xf32, bound>) stream(0) after(["new" full])
}

// The new value is half of what one instruction computes.
// CHECK-LABEL: emit.program @part
// CHECK: emit.resolved "copy" id(8) name("s.update")
emit.program @part attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<16xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<8xf32, bound>
  %n = emit.slot : !emit.buffer<16xf32, arena>
  %h = emit.view %n offset(8) : !emit.buffer<16xf32, arena> to !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("new") src(["new"]) ins(%x : !emit.buffer<16xf32, bound>) outs(%n : !emit.buffer<16xf32, arena>) stream(0) after([])
  emit.resolved "copy" id(8) name("s.update") src(["new"]) ins(%h : !emit.buffer<8xf32, arena>) outs(%s : !emit.buffer<8xf32, bound>) stream(0) after(["new" full])
}

// Two states swap: only one of them can be written early.
// CHECK-LABEL: emit.program @swap
// CHECK: name("to_a")
// CHECK-NEXT: ins(%b : {{.*}}) outs(%m :
// CHECK: name("to_b")
// CHECK-NEXT: ins(%a : {{.*}}) outs(%b :
// CHECK: name("a.update")
// CHECK-NOT: name("b.update")
emit.program @swap attributes {phase = "scheduled"} {
  %a = emit.bind state "a" updated : !emit.buffer<8xf32, bound>
  %b = emit.bind state "b" updated : !emit.buffer<8xf32, bound>
  %m = emit.slot : !emit.buffer<8xf32, arena>
  %n = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "copy" id(8) name("to_a") src(["to_a"]) ins(%b : !emit.buffer<8xf32, bound>) outs(%m : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "copy" id(8) name("to_b") src(["to_b"]) ins(%a : !emit.buffer<8xf32, bound>) outs(%n : !emit.buffer<8xf32, arena>) stream(0) after(["to_a" full])
  emit.resolved "copy" id(8) name("a.update") src(["to_a"]) ins(%m : !emit.buffer<8xf32, arena>) outs(%a : !emit.buffer<8xf32, bound>) stream(0) after(["to_b" full])
  emit.resolved "copy" id(8) name("b.update") src(["to_b"]) ins(%n : !emit.buffer<8xf32, arena>) outs(%b : !emit.buffer<8xf32, bound>) stream(0) after(["a.update" full])
}

// A result takes the slot of an operand that nothing needs afterwards.
// CHECK-LABEL: emit.program @reuse
// CHECK: %a = emit.slot
// CHECK-NOT: emit.slot
// CHECK: name("middle")
// CHECK-NEXT: ins(%a : {{.*}}) outs(%a :
// CHECK: name("last")
// CHECK-NEXT: ins(%a :
emit.program @reuse attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("first") src(["first"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("middle") src(["middle"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%b : !emit.buffer<8xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["first" full])
  emit.resolved "relu" id(1) name("last") src(["last"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["middle" full])
}

// The operand is read again later.
// CHECK-LABEL: emit.program @needed
// CHECK: name("middle")
// CHECK-NEXT: ins(%a : {{.*}}) outs(%b :
emit.program @needed attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("first") src(["first"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("middle") src(["middle"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%b : !emit.buffer<8xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["first" full])
  emit.resolved "relu" id(1) name("last") src(["last"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["middle" full])
  emit.resolved "relu" id(1) name("other") src(["other"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>) stream(0) after(["last" full])
}

// Text order proves nothing: the other reader comes first in the text, but may run at the same time on stream 1.
// CHECK-LABEL: emit.program @unordered
// CHECK: name("middle")
// CHECK-NEXT: ins(%a : {{.*}}) outs(%b :
emit.program @unordered attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<8xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("first") src(["first"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("side") src(["side"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%z : !emit.buffer<8xf32, bound>) stream(1) after(["first" full])
  emit.resolved "relu" id(1) name("middle") src(["middle"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%b : !emit.buffer<8xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["first" full])
  emit.resolved "relu" id(1) name("last") src(["last"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%y : !emit.buffer<8xf32, bound>) stream(0) after(["middle" full])
}

// A different element-to-address map, a smaller slot, no permission, an operand in the caller's memory: never.
// CHECK-LABEL: emit.program @never
// CHECK: name("turned")
// CHECK-NEXT: ins(%t : {{.*}}) outs(%b :
// CHECK: name("larger")
// CHECK-NEXT: ins(%s : {{.*}}) outs(%c :
// CHECK: name("forbidden")
// CHECK-NEXT: ins(%c : {{.*}}) outs(%d :
// CHECK: name("caller")
// CHECK-NEXT: ins(%x : {{.*}}) outs(%e :
emit.program @never attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<4x4xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<4x4xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<4x4xf32, bound>
  %a = emit.slot : !emit.buffer<4x4xf32, arena>
  %t = emit.view %a offset(0) : !emit.buffer<4x4xf32, arena> to !emit.buffer<4x4xf32, arena, strides [1, 4]>
  %b = emit.slot : !emit.buffer<4x4xf32, arena>
  %s = emit.view %b offset(0) : !emit.buffer<4x4xf32, arena> to !emit.buffer<4x4xf32, arena, strides [0, 1]>
  %c = emit.slot : !emit.buffer<4x4xf32, arena>
  %d = emit.slot : !emit.buffer<4x4xf32, arena>
  %e = emit.slot : !emit.buffer<4x4xf32, arena>
  emit.resolved "relu" id(1) name("first") src(["first"]) ins(%x : !emit.buffer<4x4xf32, bound>) outs(%a : !emit.buffer<4x4xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("turned") src(["turned"]) ins(%t : !emit.buffer<4x4xf32, arena, strides [1, 4]>) outs(%b : !emit.buffer<4x4xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["first" full])
  emit.resolved "relu" id(1) name("larger") src(["larger"]) ins(%s : !emit.buffer<4x4xf32, arena, strides [0, 1]>) outs(%c : !emit.buffer<4x4xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["turned" full])
  emit.resolved "relu" id(1) name("forbidden") src(["forbidden"]) ins(%c : !emit.buffer<4x4xf32, arena>) outs(%d : !emit.buffer<4x4xf32, arena>) stream(0) after(["larger" full])
  emit.resolved "relu" id(1) name("caller") src(["caller"]) ins(%x : !emit.buffer<4x4xf32, bound>) outs(%e : !emit.buffer<4x4xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["forbidden" full])
  emit.resolved "relu" id(1) name("show") src(["show"]) ins(%d : !emit.buffer<4x4xf32, arena>) outs(%y : !emit.buffer<4x4xf32, bound>) stream(0) after(["caller" full])
  emit.resolved "relu" id(1) name("tell") src(["tell"]) ins(%e : !emit.buffer<4x4xf32, arena>) outs(%z : !emit.buffer<4x4xf32, bound>) stream(0) after(["show" full])
}

// A slot shared already is shared once more only if everything on it ends before: the second result takes it too.
// CHECK-LABEL: emit.program @twice
// CHECK: %a = emit.slot
// CHECK-NOT: emit.slot
// CHECK: name("two")
// CHECK-NEXT: ins(%a : {{.*}}) outs(%a :
// CHECK: name("three")
// CHECK-NEXT: ins(%a : {{.*}}) outs(%a :
emit.program @twice attributes {phase = "scheduled"} {
  %x = emit.bind input "x" : !emit.buffer<8xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<2x4xf32, bound>
  %a = emit.slot : !emit.buffer<8xf32, arena>
  %b = emit.slot : !emit.buffer<8xf32, arena>
  %c = emit.slot : !emit.buffer<8xf32, arena>
  emit.resolved "relu" id(1) name("one") src(["one"]) ins(%x : !emit.buffer<8xf32, bound>) outs(%a : !emit.buffer<8xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("two") src(["two"]) ins(%a : !emit.buffer<8xf32, arena>) outs(%b : !emit.buffer<8xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["one" full])
  emit.resolved "relu" id(1) name("three") src(["three"]) ins(%b : !emit.buffer<8xf32, arena>) outs(%c : !emit.buffer<8xf32, arena>) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["two" full])
  %v = emit.view %c offset(0) : !emit.buffer<8xf32, arena> to !emit.buffer<2x4xf32, arena>
  emit.resolved "relu" id(1) name("last") src(["last"]) ins(%v : !emit.buffer<2x4xf32, arena>) outs(%y : !emit.buffer<2x4xf32, bound>) stream(0) after(["three" full])
}
