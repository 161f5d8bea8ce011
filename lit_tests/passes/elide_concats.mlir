// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,elide-concats' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"fusion\": {\"concat\": false}}"},fuse-elementwise,elide-concats' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"both\"]]}"},fuse-elementwise,elide-concats' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,elide-concats,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "elide-concats" ["both", "left", "right"] choice "2 of 2 parts written in place" because "the kernels are legal there; 160 bytes are not copied"
// CHECK: emit.decision "elide-concats" ["mixed", "c.exp", "c.next"] choice "1 of 5 parts written in place" because "the kernels are legal there; 48 bytes are not copied" rejected {"c.exp (part 1)" = "the concatenation has it twice, and it is written once", x = "it is an input or parameter, which no instruction writes", c.half = "it is a constant, which no instruction writes", c.whole = "it is a part or a repetition of a computed value, and instructions write values whole"}
// CHECK: emit.decision "elide-concats" ["shown"] choice "a copy of its parts" because "none of its parts can be written in place" rejected {r.own = "the program returns it too, and what it returns has memory of its own", y = "it is an input or parameter, which no instruction writes"}
// CHECK: emit.decision "elide-concats" ["rows", "n.exp"] choice "1 of 2 parts written in place"
// CHECK: emit.decision "elide-concats" ["nested", "n.exp", "rows.copy3", "n.neg"] choice "2 of 2 parts written in place"
// OFF: emit.decision "elide-concats" ["both"] choice "a copy of its parts" because "fusion of concatenations is off by policy (fusion.concat)"
// PINNED: emit.decision "elide-concats" ["both"] choice "a copy of its parts" because "the policy names it in its kernels or groups, so it is an instruction"

// Two branches side by side: the concatenation is a view of what both write, columns each.
// CHECK-LABEL: func.func @columns
// CHECK: %l = emit.group "left"
// CHECK: %n = emit.group "right"
// CHECK: %r = logical.transpose %n
// CHECK: %y = logical.concat %l, %r {axis = 1
// CHECK-NEXT: func.return %y
// OFF-LABEL: func.func @columns
// OFF: %y = emit.group "both" from ["both"]
// PINNED-LABEL: func.func @columns
// PINNED: %y = emit.group "both" from ["both"]
// EMIT-LABEL: emit.program @columns
// EMIT: %y = emit.bind output "y"
// EMIT: %y_1 = emit.view %y offset(0) : !emit.buffer<4x10xf32, bound> to !emit.buffer<4x3xf32, bound, strides [10, 1]>
// EMIT-NEXT: emit.resolved {{.*}} name("left")
// EMIT-NEXT: ins({{.*}}) outs(%y_1 :
// EMIT: %y_2 = emit.view %y offset(3) : !emit.buffer<4x10xf32, bound> to !emit.buffer<7x4xf32, bound, strides [1, 10]>
// EMIT-NEXT: emit.resolved {{.*}} name("right")
// EMIT-NEXT: ins({{.*}}) outs(%y_2 :
// EMIT-NOT: emit.resolved
// EMIT: emit.program @copies
func.func @columns(
    %x : tensor<4x3xf32> {logical.name = "x", logical.role = "input"},
    %z : tensor<7x4xf32> {logical.name = "z", logical.role = "input"}) -> (tensor<4x10xf32> {logical.name = "y"}) {
  %l = logical.exp %x {aicf.id = "left", aicf.src = ["left"]} : tensor<4x3xf32>
  %n = logical.neg %z {aicf.id = "right", aicf.src = ["right"]} : tensor<7x4xf32>
  %r = logical.transpose %n {permutation = [1, 0], aicf.id = "t", aicf.src = ["t"]} : tensor<7x4xf32> -> tensor<4x7xf32>
  %y = logical.concat %l, %r {axis = 1, aicf.id = "both", aicf.src = ["both"]} : (tensor<4x3xf32>, tensor<4x7xf32>) -> tensor<4x10xf32>
  func.return %y : tensor<4x10xf32>
}

// What no instruction computes, or only as part of something else, is copied, neighbours together; another reader of a
// part reads it there.
// CHECK-LABEL: func.func @copies
// CHECK: %e = emit.group "c.exp"
// CHECK: %w = emit.group "c.whole"
// CHECK: emit.group "c.next" from ["c.next"] ins(%e_1 = %e
// CHECK: %[[REST:.*]] = emit.group "mixed.copy3" from ["mixed"] ins(%[[TWICE:.*]] = %e : tensor<3x4xf32>, %[[GIVEN:.*]] = %x : tensor<3x4xf32>, %[[HALF:.*]] = %c : tensor<3x4xf32>, %[[ALL:.*]] = %w : tensor<6x4xf32>) -> (tensor<12x4xf32>)
// CHECK-NEXT: %[[PART:.*]] = logical.slice %[[ALL]]
// CHECK-NEXT: logical.concat %[[TWICE]], %[[GIVEN]], %[[HALF]], %[[PART]] {axis = 0
// CHECK: logical.concat %e, %[[REST]] {axis = 0
// EMIT: emit.view %y offset(0) : !emit.buffer<15x4xf32, bound> to !emit.buffer<3x4xf32, bound>
// EMIT-NEXT: emit.resolved {{.*}} name("c.exp")
// EMIT: %[[READ:.*]] = emit.view %y offset(0)
// EMIT-NEXT: emit.resolved {{.*}} name("c.next")
// EMIT-NEXT: ins(%[[READ]]
// EMIT: %[[WRITTEN:.*]] = emit.view %y offset(12) : !emit.buffer<15x4xf32, bound> to !emit.buffer<12x4xf32, bound>
// EMIT-NEXT: emit.resolved "concat" {{.*}} name("mixed.copy3")
func.func @copies(%x : tensor<3x4xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<15x4xf32> {logical.name = "y"}, tensor<3x4xf32> {logical.name = "z"}, tensor<6x4xf32> {logical.name = "w"}) {
  %c = logical.constant dense<0.5> {aicf.id = "c.half", aicf.src = ["c.half"]} : tensor<3x4xf32>
  %e = logical.exp %x {aicf.id = "c.exp", aicf.src = ["c.exp"]} : tensor<3x4xf32>
  %b = logical.concat %x, %x {axis = 0, aicf.id = "twins", aicf.src = ["twins"]} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  %w = logical.tanh %b {aicf.id = "c.whole", aicf.src = ["c.whole"]} : tensor<6x4xf32>
  %p = logical.slice %w {starts = [1, 0], sizes = [3, 4], strides = [1, 1], aicf.id = "c.part", aicf.src = ["c.part"]} : tensor<6x4xf32> -> tensor<3x4xf32>
  %z = logical.cumsum %e {axis = 0, aicf.id = "c.next", aicf.src = ["c.next"]} : tensor<3x4xf32>
  %y = logical.concat %e, %e, %x, %c, %p {axis = 0, aicf.id = "mixed", aicf.src = ["mixed"]} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<15x4xf32>
  func.return %y, %z, %w : tensor<15x4xf32>, tensor<3x4xf32>, tensor<6x4xf32>
}

// A result of the program has memory of its own, so the concatenation copies it.
// CHECK-LABEL: func.func @results
// CHECK: emit.group "shown" from ["shown"]
func.func @results(%y : tensor<3x4xf32> {logical.name = "y", logical.role = "input"})
    -> (tensor<6x4xf32> {logical.name = "a"}, tensor<3x4xf32> {logical.name = "b"}) {
  %r = logical.exp %y {aicf.id = "r.own", aicf.src = ["r.own"]} : tensor<3x4xf32>
  %a = logical.concat %r, %y {axis = 0, aicf.id = "shown", aicf.src = ["shown"]} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  func.return %a, %r : tensor<6x4xf32>, tensor<3x4xf32>
}

// A concatenation inside another along the other axis: blocks of one buffer.
// CHECK-LABEL: func.func @blocks
// CHECK: %[[ROWS:.*]] = logical.concat %e, %{{.*}} {axis = 0
// CHECK: logical.concat %[[ROWS]], %n {axis = 1
// EMIT-LABEL: emit.program @blocks
// EMIT: emit.view %y offset(0) : !emit.buffer<5x7xf32, bound> to !emit.buffer<3x4xf32, bound, strides [7, 1]>
// EMIT-NEXT: emit.resolved {{.*}} name("n.exp")
// EMIT: emit.view %y offset(4) : !emit.buffer<5x7xf32, bound> to !emit.buffer<5x3xf32, bound, strides [7, 1]>
// EMIT-NEXT: emit.resolved {{.*}} name("n.neg")
// EMIT: emit.view %y offset(21) : !emit.buffer<5x7xf32, bound> to !emit.buffer<2x4xf32, bound, strides [7, 1]>
// EMIT-NEXT: emit.resolved {{.*}} name("rows.copy3")
func.func @blocks(
    %x : tensor<3x4xf32> {logical.name = "x", logical.role = "input"},
    %g : tensor<2x4xf32> {logical.name = "g", logical.role = "input"},
    %h : tensor<5x3xf32> {logical.name = "h", logical.role = "input"}) -> (tensor<5x7xf32> {logical.name = "y"}) {
  %e = logical.exp %x {aicf.id = "n.exp", aicf.src = ["n.exp"]} : tensor<3x4xf32>
  %n = logical.neg %h {aicf.id = "n.neg", aicf.src = ["n.neg"]} : tensor<5x3xf32>
  %r = logical.concat %e, %g {axis = 0, aicf.id = "rows", aicf.src = ["rows"]} : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<5x4xf32>
  %y = logical.concat %r, %n {axis = 1, aicf.id = "nested", aicf.src = ["nested"]} : (tensor<5x4xf32>, tensor<5x3xf32>) -> tensor<5x7xf32>
  func.return %y : tensor<5x7xf32>
}
