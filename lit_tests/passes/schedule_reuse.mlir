// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},schedule' | filecheck %s --check-prefixes=CHECK,REUSE
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{order: text}"},schedule' | filecheck %s --check-prefixes=CHECK,TEXT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{streams: 2}"},schedule' | filecheck %s --check-prefix=TWO
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},schedule' | filecheck %s --check-prefix=TWO
// RUN: aicf-opt %s -p 'schedule' | filecheck %s --check-prefixes=CHECK,TEXT
// RUN: sed '/emit.resolved .* name("a3")/s/$/ constraints {no_reorder}/' %s | aicf-opt -p 'set-target{target="cpu:x86-64-v3"},schedule,verify-order' | filecheck %s --check-prefix=KEPT

// An instruction that keeps its place stays after all before it: the first branches are run to their ends only after.
// KEPT-LABEL: emit.program @breadth_first attributes
// KEPT: name("a0")
// KEPT: name("a1")
// KEPT: name("a2")
// KEPT: name("a3")
// KEPT: name("b

// The ledger has the bytes; what stays in text order has one decision.
// REUSE: emit.decision "schedule" ["breadth_first"] choice "order by reuse" because "3145728 bytes come from memory, 6291456 in text order"
// REUSE: emit.decision "schedule" ["breadth_first"] choice "12 instructions in order of reuse on 1 stream"
// TEXT: emit.decision "schedule" ["breadth_first"] choice "12 instructions in text order on 1 stream"
// CHECK: emit.decision "schedule" ["depth_first"] choice "6 instructions in text order on 1 stream"
// CHECK: emit.decision "schedule" ["small"] choice "6 instructions in text order on 1 stream"
// CHECK: emit.decision "schedule" ["placed"] choice "6 instructions in text order on 1 stream"
// REUSE: emit.decision "schedule" ["state"] choice "order by reuse" because "
// TWO: emit.decision "schedule" ["breadth_first"] choice "12 instructions in text order on
// TWO-NOT: order of reuse

// Six branches of two instructions, all first ones in front. Together their buffers are larger than the cache of a
// core, two of them are not: each branch is run to its end, and reads what it wrote from the cache.
// CHECK-LABEL: emit.program @breadth_first attributes
// REUSE: name("a0")
// REUSE: after([])
// REUSE: name("b0")
// REUSE: after(["a0" full])
// REUSE: name("a1")
// REUSE: after(["b0" full])
// REUSE: name("b1")
// REUSE: after(["a1" full])
// REUSE: name("a2")
// REUSE: after(["b1" full])
// REUSE: name("b2")
// REUSE: after(["a2" full])
// REUSE: name("a3")
// REUSE: after(["b2" full])
// REUSE: name("b3")
// REUSE: after(["a3" full])
// REUSE: name("a4")
// REUSE: after(["b3" full])
// REUSE: name("b4")
// REUSE: after(["a4" full])
// REUSE: name("a5")
// REUSE: after(["b4" full])
// REUSE: name("b5")
// REUSE: after(["a5" full])
// TEXT: name("a0")
// TEXT: after([])
// TEXT: name("a1")
// TEXT: after(["a0" full])
// TEXT: name("a2")
// TEXT: after(["a1" full])
// TEXT: name("a3")
// TEXT: after(["a2" full])
// TEXT: name("a4")
// TEXT: after(["a3" full])
// TEXT: name("a5")
// TEXT: after(["a4" full])
// TEXT: name("b0")
// TEXT: after(["a5" full])
// TEXT: name("b1")
// TEXT: after(["b0" full])
// TEXT: name("b2")
// TEXT: after(["b1" full])
// TEXT: name("b3")
// TEXT: after(["b2" full])
// TEXT: name("b4")
// TEXT: after(["b3" full])
// TEXT: name("b5")
// TEXT: after(["b4" full])
emit.program @breadth_first attributes {phase = "bufferized"} {
  %x0 = emit.bind input "x0" : !emit.buffer<512x256xf32, bound>
  %x1 = emit.bind input "x1" : !emit.buffer<512x256xf32, bound>
  %x2 = emit.bind input "x2" : !emit.buffer<512x256xf32, bound>
  %x3 = emit.bind input "x3" : !emit.buffer<512x256xf32, bound>
  %x4 = emit.bind input "x4" : !emit.buffer<512x256xf32, bound>
  %x5 = emit.bind input "x5" : !emit.buffer<512x256xf32, bound>
  %y0 = emit.bind output "y0" : !emit.buffer<512x256xf32, bound>
  %y1 = emit.bind output "y1" : !emit.buffer<512x256xf32, bound>
  %y2 = emit.bind output "y2" : !emit.buffer<512x256xf32, bound>
  %y3 = emit.bind output "y3" : !emit.buffer<512x256xf32, bound>
  %y4 = emit.bind output "y4" : !emit.buffer<512x256xf32, bound>
  %y5 = emit.bind output "y5" : !emit.buffer<512x256xf32, bound>
  %s0 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s1 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s2 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s3 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s4 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s5 = emit.slot : !emit.buffer<512x256xf32, arena>
  emit.resolved "relu" id(1) name("a0") src(["a0"]) ins(%x0 : !emit.buffer<512x256xf32, bound>) outs(%s0 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a1") src(["a1"]) ins(%x1 : !emit.buffer<512x256xf32, bound>) outs(%s1 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a2") src(["a2"]) ins(%x2 : !emit.buffer<512x256xf32, bound>) outs(%s2 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a3") src(["a3"]) ins(%x3 : !emit.buffer<512x256xf32, bound>) outs(%s3 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a4") src(["a4"]) ins(%x4 : !emit.buffer<512x256xf32, bound>) outs(%s4 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a5") src(["a5"]) ins(%x5 : !emit.buffer<512x256xf32, bound>) outs(%s5 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("b0") src(["b0"]) ins(%s0 : !emit.buffer<512x256xf32, arena>) outs(%y0 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b1") src(["b1"]) ins(%s1 : !emit.buffer<512x256xf32, arena>) outs(%y1 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b2") src(["b2"]) ins(%s2 : !emit.buffer<512x256xf32, arena>) outs(%y2 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b3") src(["b3"]) ins(%s3 : !emit.buffer<512x256xf32, arena>) outs(%y3 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b4") src(["b4"]) ins(%s4 : !emit.buffer<512x256xf32, arena>) outs(%y4 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b5") src(["b5"]) ins(%s5 : !emit.buffer<512x256xf32, arena>) outs(%y5 : !emit.buffer<512x256xf32, bound>)
}

// Written branch by branch: nothing to gain.
// CHECK-LABEL: emit.program @depth_first attributes
// CHECK: name("a0")
// CHECK: after([])
// CHECK: name("b0")
// CHECK: after(["a0" full])
// CHECK: name("a1")
// CHECK: after(["b0" full])
// CHECK: name("b1")
// CHECK: after(["a1" full])
// CHECK: name("a2")
// CHECK: after(["b1" full])
// CHECK: name("b2")
// CHECK: after(["a2" full])
emit.program @depth_first attributes {phase = "bufferized"} {
  %x0 = emit.bind input "x0" : !emit.buffer<512x256xf32, bound>
  %x1 = emit.bind input "x1" : !emit.buffer<512x256xf32, bound>
  %x2 = emit.bind input "x2" : !emit.buffer<512x256xf32, bound>
  %y0 = emit.bind output "y0" : !emit.buffer<512x256xf32, bound>
  %y1 = emit.bind output "y1" : !emit.buffer<512x256xf32, bound>
  %y2 = emit.bind output "y2" : !emit.buffer<512x256xf32, bound>
  %s0 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s1 = emit.slot : !emit.buffer<512x256xf32, arena>
  %s2 = emit.slot : !emit.buffer<512x256xf32, arena>
  emit.resolved "relu" id(1) name("a0") src(["a0"]) ins(%x0 : !emit.buffer<512x256xf32, bound>) outs(%s0 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("b0") src(["b0"]) ins(%s0 : !emit.buffer<512x256xf32, arena>) outs(%y0 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("a1") src(["a1"]) ins(%x1 : !emit.buffer<512x256xf32, bound>) outs(%s1 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("b1") src(["b1"]) ins(%s1 : !emit.buffer<512x256xf32, arena>) outs(%y1 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("a2") src(["a2"]) ins(%x2 : !emit.buffer<512x256xf32, bound>) outs(%s2 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("b2") src(["b2"]) ins(%s2 : !emit.buffer<512x256xf32, arena>) outs(%y2 : !emit.buffer<512x256xf32, bound>)
}

// All of it stays in the cache in any order.
// CHECK-LABEL: emit.program @small attributes
// CHECK: name("a0")
// CHECK: after([])
// CHECK: name("a1")
// CHECK: after(["a0" full])
// CHECK: name("a2")
// CHECK: after(["a1" full])
// CHECK: name("b0")
// CHECK: after(["a2" full])
// CHECK: name("b1")
// CHECK: after(["b0" full])
// CHECK: name("b2")
// CHECK: after(["b1" full])
emit.program @small attributes {phase = "bufferized"} {
  %x0 = emit.bind input "x0" : !emit.buffer<512x8xf32, bound>
  %x1 = emit.bind input "x1" : !emit.buffer<512x8xf32, bound>
  %x2 = emit.bind input "x2" : !emit.buffer<512x8xf32, bound>
  %y0 = emit.bind output "y0" : !emit.buffer<512x8xf32, bound>
  %y1 = emit.bind output "y1" : !emit.buffer<512x8xf32, bound>
  %y2 = emit.bind output "y2" : !emit.buffer<512x8xf32, bound>
  %s0 = emit.slot : !emit.buffer<512x8xf32, arena>
  %s1 = emit.slot : !emit.buffer<512x8xf32, arena>
  %s2 = emit.slot : !emit.buffer<512x8xf32, arena>
  emit.resolved "relu" id(1) name("a0") src(["a0"]) ins(%x0 : !emit.buffer<512x8xf32, bound>) outs(%s0 : !emit.buffer<512x8xf32, arena>)
  emit.resolved "relu" id(1) name("a1") src(["a1"]) ins(%x1 : !emit.buffer<512x8xf32, bound>) outs(%s1 : !emit.buffer<512x8xf32, arena>)
  emit.resolved "relu" id(1) name("a2") src(["a2"]) ins(%x2 : !emit.buffer<512x8xf32, bound>) outs(%s2 : !emit.buffer<512x8xf32, arena>)
  emit.resolved "relu" id(1) name("b0") src(["b0"]) ins(%s0 : !emit.buffer<512x8xf32, arena>) outs(%y0 : !emit.buffer<512x8xf32, bound>)
  emit.resolved "relu" id(1) name("b1") src(["b1"]) ins(%s1 : !emit.buffer<512x8xf32, arena>) outs(%y1 : !emit.buffer<512x8xf32, bound>)
  emit.resolved "relu" id(1) name("b2") src(["b2"]) ins(%s2 : !emit.buffer<512x8xf32, arena>) outs(%y2 : !emit.buffer<512x8xf32, bound>)
}

// Slots that were given their places may share bytes, which the text order may be all that keeps right.
// CHECK-LABEL: emit.program @placed attributes
// CHECK: name("a0")
// CHECK: after([])
// CHECK: name("a1")
// CHECK: after(["a0" full])
// CHECK: name("a2")
// CHECK: after(["a1" full])
// CHECK: name("b0")
// CHECK: after(["a2" full])
// CHECK: name("b1")
// CHECK: after(["b0" full])
// CHECK: name("b2")
// CHECK: after(["b1" full])
emit.program @placed attributes {phase = "bufferized"} {
  %x0 = emit.bind input "x0" : !emit.buffer<512x256xf32, bound>
  %x1 = emit.bind input "x1" : !emit.buffer<512x256xf32, bound>
  %x2 = emit.bind input "x2" : !emit.buffer<512x256xf32, bound>
  %y0 = emit.bind output "y0" : !emit.buffer<512x256xf32, bound>
  %y1 = emit.bind output "y1" : !emit.buffer<512x256xf32, bound>
  %y2 = emit.bind output "y2" : !emit.buffer<512x256xf32, bound>
  %s0 = emit.slot offset(0) size(524288) align(64) : !emit.buffer<512x256xf32, arena>
  %s1 = emit.slot offset(524288) size(524288) align(64) : !emit.buffer<512x256xf32, arena>
  %s2 = emit.slot offset(1048576) size(524288) align(64) : !emit.buffer<512x256xf32, arena>
  emit.resolved "relu" id(1) name("a0") src(["a0"]) ins(%x0 : !emit.buffer<512x256xf32, bound>) outs(%s0 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a1") src(["a1"]) ins(%x1 : !emit.buffer<512x256xf32, bound>) outs(%s1 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("a2") src(["a2"]) ins(%x2 : !emit.buffer<512x256xf32, bound>) outs(%s2 : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("b0") src(["b0"]) ins(%s0 : !emit.buffer<512x256xf32, arena>) outs(%y0 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b1") src(["b1"]) ins(%s1 : !emit.buffer<512x256xf32, arena>) outs(%y1 : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("b2") src(["b2"]) ins(%s2 : !emit.buffer<512x256xf32, arena>) outs(%y2 : !emit.buffer<512x256xf32, bound>)
}

// What reads the old state stays before what overwrites it, and what reads the new one after, wherever the cache
// would have them.
// REUSE-LABEL: emit.program @state attributes
// REUSE: name("old")
// REUSE: name("save")
// REUSE: name("update")
// REUSE: name("new")
emit.program @state attributes {phase = "bufferized"} {
  %x = emit.bind input "x" : !emit.buffer<512x256xf32, bound>
  %u = emit.bind input "u" : !emit.buffer<512x256xf32, bound>
  %v = emit.bind input "v" : !emit.buffer<512x256xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<512x256xf32, bound>
  %y = emit.bind output "y" : !emit.buffer<512x256xf32, bound>
  %z = emit.bind output "z" : !emit.buffer<512x256xf32, bound>
  %p = emit.bind output "p" : !emit.buffer<512x256xf32, bound>
  %q = emit.bind output "q" : !emit.buffer<512x256xf32, bound>
  %old = emit.slot : !emit.buffer<512x256xf32, arena>
  %left = emit.slot : !emit.buffer<512x256xf32, arena>
  %right = emit.slot : !emit.buffer<512x256xf32, arena>
  emit.resolved "relu" id(1) name("left") src(["left"]) ins(%u : !emit.buffer<512x256xf32, bound>) outs(%left : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("old") src(["old"]) ins(%s : !emit.buffer<512x256xf32, bound>) outs(%old : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("right") src(["right"]) ins(%v : !emit.buffer<512x256xf32, bound>) outs(%right : !emit.buffer<512x256xf32, arena>)
  emit.resolved "relu" id(1) name("save") src(["save"]) ins(%old : !emit.buffer<512x256xf32, arena>) outs(%y : !emit.buffer<512x256xf32, bound>)
  emit.resolved "copy" id(8) name("update") src(["update"]) ins(%x : !emit.buffer<512x256xf32, bound>) outs(%s : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("show.left") src(["show.left"]) ins(%left : !emit.buffer<512x256xf32, arena>) outs(%p : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("show.right") src(["show.right"]) ins(%right : !emit.buffer<512x256xf32, arena>) outs(%q : !emit.buffer<512x256xf32, bound>)
  emit.resolved "relu" id(1) name("new") src(["new"]) ins(%s : !emit.buffer<512x256xf32, bound>) outs(%z : !emit.buffer<512x256xf32, bound>)
}
