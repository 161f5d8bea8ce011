// RUN: aicf-opt %s -p 'plan-memory,verify-emit,verify-order' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{memory: separate}"},plan-memory,verify-order' | filecheck %s --check-prefix=SEPARATE

// CHECK: emit.decision "plan-memory" ["chain"] choice "arena of 192 bytes for 4 slots" because "equals the lower bound" rejected {"a slot each" = "320 bytes"} cost {arena_bytes = 192 : i64, lower_bound_bytes = 192 : i64}
// CHECK-NEXT: emit.decision "plan-memory" ["streams"] choice "arena of 128 bytes for 2 slots" because "equals the lower bound" cost
// CHECK-NEXT: emit.decision "plan-memory" ["workspace"] choice "arena of 192 bytes for 3 slots" because "equals the lower bound" rejected {"a slot each" = "256 bytes"}
// CHECK-NEXT: emit.decision "plan-memory" ["empty"] choice "arena of 0 bytes for 0 slots"

// A chain under a total order: slots that are never alive together share bytes; sizes are whole cache lines.
// Where the policy gives every slot bytes of its own, they lie one after the other.
// SEPARATE: emit.decision "plan-memory" ["chain"] choice "arena of 320 bytes for 4 slots" because "the policy gives each slot bytes of its own; lower bound 192 bytes"
// SEPARATE: choice "arena of 0 bytes for 0 slots"
// SEPARATE: %a = emit.slot offset(0) size(64) align(64)
// SEPARATE-NEXT: %b = emit.slot offset(64) size(128) align(64)
// SEPARATE-NEXT: %c = emit.slot offset(192) size(64) align(64)
// SEPARATE-NEXT: %d = emit.slot offset(256) size(64) align(64)

// CHECK-LABEL: emit.program @chain attributes {phase = "planned", arena_bytes = 192 : i64} {
// CHECK: %a = emit.slot offset(128) size(64) align(64) : !emit.buffer<3xf32, arena>
// CHECK-NEXT: %b = emit.slot offset(0) size(128) align(64) : !emit.buffer<32xf32, arena>
// CHECK-NEXT: %c = emit.slot offset(128) size(64) align(64) : !emit.buffer<3xf32, arena>
// CHECK-NEXT: %d = emit.slot offset(0) size(64) align(64) : !emit.buffer<3xf32, arena>
// CHECK-NOT: %unused
emit.program @chain attributes {phase = "inplace"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  %b = emit.slot : !emit.buffer<32xf32, arena>
  %c = emit.slot : !emit.buffer<3xf32, arena>
  %d = emit.slot : !emit.buffer<3xf32, arena>
  %unused = emit.slot : !emit.buffer<4096xf32, arena>
  emit.resolved "relu" id(1) name("one") src(["one"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "generated" id(24) name("two") src(["two"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%b : !emit.buffer<32xf32, arena>) stream(0) after(["one" full])
  emit.resolved "generated" id(24) name("three") src(["three"]) ins(%b : !emit.buffer<32xf32, arena>) outs(%c : !emit.buffer<3xf32, arena>) stream(0) after(["two" full])
  emit.resolved "relu" id(1) name("four") src(["four"]) ins(%c : !emit.buffer<3xf32, arena>) outs(%d : !emit.buffer<3xf32, arena>) stream(0) after(["three" full])
  emit.resolved "relu" id(1) name("five") src(["five"]) ins(%d : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["four" full])
}

// Two streams: in the text the first branch is over before the second begins, but nothing orders them, so their slots
// lie apart.
// CHECK-LABEL: emit.program @streams attributes {phase = "planned", arena_bytes = 128 : i64} {
// CHECK: %a = emit.slot offset(0) size(64)
// CHECK: %b = emit.slot offset(64) size(64)
emit.program @streams attributes {phase = "inplace"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<3xf32, bound>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  %b = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("l1") src(["l1"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("l2") src(["l2"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["l1" full])
  emit.resolved "relu" id(1) name("r1") src(["r1"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%b : !emit.buffer<3xf32, arena>) stream(1) after([])
  emit.resolved "relu" id(1) name("r2") src(["r2"]) ins(%b : !emit.buffer<3xf32, arena>) outs(%z : !emit.buffer<3xf32, bound>) stream(1) after(["r1" full])
}

// Workspace lives while its instruction runs.
// CHECK-LABEL: emit.program @workspace attributes {phase = "planned", arena_bytes = 192 : i64} {
// CHECK: %w = emit.slot offset(0) size(128)
// CHECK-NEXT: %a = emit.slot offset(128) size(64)
// CHECK-NEXT: %b = emit.slot offset(0) size(64)
emit.program @workspace attributes {phase = "inplace"} {
  %x = emit.bind input "x" : !emit.buffer<3xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<3xf32, bound>
  %w = emit.slot : !emit.buffer<100xi8, arena>
  %a = emit.slot : !emit.buffer<3xf32, arena>
  %b = emit.slot : !emit.buffer<3xf32, arena>
  emit.resolved "relu" id(1) name("one") src(["one"]) ins(%x : !emit.buffer<3xf32, bound>) outs(%a : !emit.buffer<3xf32, arena>) ws(%w : !emit.buffer<100xi8, arena>) stream(0) after([])
  emit.resolved "relu" id(1) name("two") src(["two"]) ins(%a : !emit.buffer<3xf32, arena>) outs(%b : !emit.buffer<3xf32, arena>) stream(0) after(["one" full])
  emit.resolved "relu" id(1) name("three") src(["three"]) ins(%b : !emit.buffer<3xf32, arena>) outs(%y : !emit.buffer<3xf32, bound>) stream(0) after(["two" full])
}

// CHECK-LABEL: emit.program @empty attributes {phase = "planned", arena_bytes = 0 : i64} {
emit.program @empty attributes {phase = "inplace"} {
}
