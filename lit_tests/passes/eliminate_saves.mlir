// RUN: aicf-opt %s -p 'eliminate-saves' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"saves\": {\"h.save\": \"recompute\", \"turned.save\": \"keep\", \"a.save\": \"recompute\", \"half.save\": \"keep\"}}"},eliminate-saves' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"saves\": {\"e2.save\": \"keep\"}}"},eliminate-saves{less=100000}' | filecheck %s --check-prefix=LEAST
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},eliminate-saves{less=1000}' | filecheck %s --check-prefix=LESS
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},eliminate-saves{share=0.5}' | filecheck %s --check-prefix=SHARE
// RUN: not aicf-opt %s -p 'eliminate-saves{share=1.5}' 2>&1 | filecheck %s --check-prefix=PART
// RUN: not aicf-opt %s -p 'set-target{target="reference:typed"},apply-policy{policy="{\"saves\": {\"a\": \"keep\"}}"},eliminate-saves' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not aicf-opt %s -p 'set-target{target="reference:typed"},apply-policy{policy="{\"saves\": {\"a.save\": \"drop\"}}"}' 2>&1 | filecheck %s --check-prefix=VALUE

// NAME: error: {{.*}}saves.a: no save has that id; it has: a.save, e0.save, e1.save, e2.save, e3.save, given.save, h.save, half.save, rows.save, turned.save
// PART: error: {{.*}}share is 1.5; give a number from 0 to 1
// VALUE: error: {{.*}}saves.a.save: 'drop' is not legal; legal: keep, recompute

// The choices are written down as a policy, by which the same program is made again.
// CHECK: aicf.execution = {{.*}} order = "reuse", {{.*}} saves = {a.save = "keep", e0.save = "keep", e1.save = "keep", e2.save = "keep", e3.save = "keep", given.save = "keep", h.save = "keep", half.save = "recompute", rows.save = "keep", turned.save = "keep"}

// Nothing asks for memory: what takes time to compute again is kept, and what lies in other memory needs none. The sign
// of what is kept is free: it was in registers, and reading it would read as much.
// CHECK: emit.decision "eliminate-saves" ["rows.save"] choice "alias" because "it lies in argument 'x', which is there anyway"
// CHECK-NEXT: emit.decision "eliminate-saves" ["h.save"] choice "keep" because "computing it again takes time, and memory is not short" rejected {recompute = "1 op again"} cost {bytes = 512 : i64, recompute_operations = 2.048000e+03 : f64}
// CHECK-NEXT: emit.decision "eliminate-saves" ["turned.save"] choice "alias" because "it lies in what 'h.save' keeps, which is there anyway"
// CHECK-NEXT: emit.decision "eliminate-saves" ["half.save"] choice "recompute" because "computing it reads no more than reading it would, and it is not written" rejected {keep = "512 bytes until it is read"} cost {bytes = 512 : i64, recompute_operations = 1.280000e+02 : f64}
// CHECK-NEXT: emit.decision "eliminate-saves" ["a.save"] choice "keep" because {{.*}} rejected {recompute = "3 ops again"}
// CHECK-NEXT: emit.decision "eliminate-saves" ["given.save"] choice "alias" because "it lies in 'given', a constant or a result, which is there anyway"
// CHECK-NOT: logical.save
// CHECK-LABEL: func.func @net
// CHECK: %dgiven = logical.mul %g, %given
// CHECK-NEXT: %da = logical.mul %dgiven, %a
// CHECK-NEXT: %half.again = logical.neg %h {aicf.id = "half.again", aicf.src = ["half"]}
// CHECK-NEXT: %dhalf = logical.mul %da, %half.again
// CHECK-NEXT: %dw = logical.matmul %turned, %da
// CHECK-NEXT: %dh = logical.mul %dhalf, %h
// CHECK: %dx = logical.matmul %rows, %dr

// What a policy wants is done; memory that two saves share is kept if one of them is to be.
// PINNED: emit.decision "eliminate-saves" ["h.save"] choice "keep" because "the policy says so"
// PINNED-NEXT: emit.decision "eliminate-saves" ["turned.save"] choice "alias"
// PINNED-NEXT: emit.decision "eliminate-saves" ["half.save"] choice "keep" because "the policy says so"
// PINNED-NEXT: emit.decision "eliminate-saves" ["a.save"] choice "recompute" because "the policy says so" rejected {keep = "512 bytes until it is read"} cost {bytes = 512 : i64, recompute_us = {{.*}}}
// PINNED-LABEL: func.func @net
// PINNED: %square.again = logical.mul %half, %half
// PINNED-NEXT: %a.again = logical.exp %square.again
// PINNED-NEXT: %da = logical.mul %dgiven, %a.again
// PINNED-NEXT: %dhalf = logical.mul %da, %half
func.func @net(
    %x : tensor<8x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x16xf32> {logical.name = "w", logical.role = "param"},
    %g : tensor<8x16xf32> {logical.name = "g", logical.role = "input"})
    -> (tensor<8x16xf32> {logical.name = "given"}, tensor<8x8xf32> {logical.name = "dx"}, tensor<16x16xf32> {logical.name = "dw"}, tensor<8x16xf32> {logical.name = "dh"}) {
  %rows = logical.transpose %x {permutation = [1, 0], aicf.id = "rows", aicf.src = ["rows"]} : tensor<8x8xf32> -> tensor<8x8xf32>
  %rows.save = logical.save %rows {aicf.id = "rows.save", aicf.src = ["rows"]} : tensor<8x8xf32>
  %h = logical.matmul %x, %w {aicf.id = "h", aicf.src = ["h"]} : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %h.save = logical.save %h {aicf.id = "h.save", aicf.src = ["h"]} : tensor<8x16xf32>
  %turned = logical.transpose %h {permutation = [1, 0], aicf.id = "turned", aicf.src = ["turned"]} : tensor<8x16xf32> -> tensor<16x8xf32>
  %turned.save = logical.save %turned {aicf.id = "turned.save", aicf.src = ["turned"]} : tensor<16x8xf32>
  %half = logical.neg %h {aicf.id = "half", aicf.src = ["half"]} : tensor<8x16xf32>
  %half.save = logical.save %half {aicf.id = "half.save", aicf.src = ["half"]} : tensor<8x16xf32>
  %square = logical.mul %half, %half {aicf.id = "square", aicf.src = ["square"]} : tensor<8x16xf32>
  %a = logical.exp %square {aicf.id = "a", aicf.src = ["a"]} : tensor<8x16xf32>
  %a.save = logical.save %a {aicf.id = "a.save", aicf.src = ["a"]} : tensor<8x16xf32>
  %mixed = logical.matmul %a, %w {transpose_b, aicf.id = "mixed", aicf.src = ["mixed"]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32>
  %given = logical.matmul %mixed, %w {aicf.id = "given", aicf.src = ["given"]} : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %given.save = logical.save %given {aicf.id = "given.save", aicf.src = ["given"]} : tensor<8x16xf32>
  %dgiven = logical.mul %g, %given.save {aicf.id = "dgiven", aicf.src = ["dgiven"]} : tensor<8x16xf32>
  %da = logical.mul %dgiven, %a.save {aicf.id = "da", aicf.src = ["da"]} : tensor<8x16xf32>
  %dhalf = logical.mul %da, %half.save {aicf.id = "dhalf", aicf.src = ["dhalf"]} : tensor<8x16xf32>
  %dw = logical.matmul %turned.save, %da {aicf.id = "dw", aicf.src = ["dw"]} : (tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %dh = logical.mul %dhalf, %h.save {aicf.id = "dh", aicf.src = ["dh"]} : tensor<8x16xf32>
  %dr = logical.matmul %dh, %w {transpose_b, aicf.id = "dr", aicf.src = ["dr"]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32>
  %dx = logical.matmul %rows.save, %dr {aicf.id = "dx", aicf.src = ["dx"]} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %given, %dx, %dw, %dh : tensor<8x16xf32>, tensor<8x8xf32>, tensor<16x16xf32>, tensor<8x16xf32>
}


// Two of four values are enough to have the others again: at the peak 1024 bytes fewer are alive. Instructions stay in
// text order then.
// LESS: order = "text"
// LESS: emit.decision "eliminate-saves" ["e0.save"] choice "recompute" because "memory is to shrink by 1000 bytes"
// LESS-NEXT: emit.decision "eliminate-saves" ["e1.save"] choice "keep"
// LESS-NEXT: emit.decision "eliminate-saves" ["e2.save"] choice "recompute"
// LESS-NEXT: emit.decision "eliminate-saves" ["e3.save"] choice "keep"
// LESS-NEXT: emit.decision "eliminate-saves" ["deep"] choice "2 of 4 saved values computed again" because "1536 bytes alive at most, 2560 before, as estimated without groups"
// LESS-LABEL: func.func @deep
// LESS: %d3 = logical.mul %d, %e3
// LESS-NEXT: %p2.again = logical.matmul %e1, %w
// LESS-NEXT: %e2.again = logical.exp %p2.again
// LESS-NEXT: %w3 = logical.matmul %e2.again, %d3
// LESS: %d2 = logical.mul %g3, %e2.again
// LESS-NEXT: %w2 = logical.matmul %e1, %d2
// LESS: %d1 = logical.mul %g2, %e1
// LESS-NEXT: %p0.again = logical.matmul %x, %w
// LESS-NEXT: %e0.again = logical.exp %p0.again
// LESS-NEXT: %w1 = logical.matmul %e0.again, %d1

// A share is of what each function would keep: half of 1024 and of 2048 bytes.
// SHARE: order = "text"
// SHARE: emit.decision "eliminate-saves" ["net"] choice "2 of 3 saved values computed again" because "1024 bytes alive at most, 1536 before, as estimated without groups"
// SHARE: emit.decision "eliminate-saves" ["e0.save"] choice "recompute" because "memory is to shrink by 1024 bytes"
// SHARE-NEXT: emit.decision "eliminate-saves" ["e1.save"] choice "keep"

// What cannot be met is not: as few bytes as are found, with what the policy says.
// LEAST: emit.decision "eliminate-saves" ["e2.save"] choice "keep" because "the policy says so"
// LEAST-LABEL: func.func @deep
func.func @deep(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<16x16xf32> {logical.name = "v", logical.role = "param"})
    -> (tensor<16x16xf32> {logical.name = "dw0"}, tensor<16x16xf32> {logical.name = "dw1"}, tensor<16x16xf32> {logical.name = "dw2"}, tensor<16x16xf32> {logical.name = "dw3"}) {
  %p0 = logical.matmul %x, %w {aicf.id = "p0", aicf.src = ["p0"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %e0 = logical.exp %p0 {aicf.id = "e0", aicf.src = ["e0"]} : tensor<8x16xf32>
  %e0.save = logical.save %e0 {aicf.id = "e0.save", aicf.src = ["e0"]} : tensor<8x16xf32>
  %p1 = logical.matmul %e0, %w {aicf.id = "p1", aicf.src = ["p1"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %e1 = logical.exp %p1 {aicf.id = "e1", aicf.src = ["e1"]} : tensor<8x16xf32>
  %e1.save = logical.save %e1 {aicf.id = "e1.save", aicf.src = ["e1"]} : tensor<8x16xf32>
  %p2 = logical.matmul %e1, %w {aicf.id = "p2", aicf.src = ["p2"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %e2 = logical.exp %p2 {aicf.id = "e2", aicf.src = ["e2"]} : tensor<8x16xf32>
  %e2.save = logical.save %e2 {aicf.id = "e2.save", aicf.src = ["e2"]} : tensor<8x16xf32>
  %p3 = logical.matmul %e2, %w {aicf.id = "p3", aicf.src = ["p3"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %e3 = logical.exp %p3 {aicf.id = "e3", aicf.src = ["e3"]} : tensor<8x16xf32>
  %e3.save = logical.save %e3 {aicf.id = "e3.save", aicf.src = ["e3"]} : tensor<8x16xf32>
  %d = logical.neg %e3 {aicf.id = "d", aicf.src = ["d"]} : tensor<8x16xf32>
  %d3 = logical.mul %d, %e3.save {aicf.id = "d3", aicf.src = ["d3"]} : tensor<8x16xf32>
  %w3 = logical.matmul %e2.save, %d3 {transpose_a, aicf.id = "w3", aicf.src = ["w3"]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %g3 = logical.matmul %d3, %w {transpose_b, aicf.id = "g3", aicf.src = ["g3"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %d2 = logical.mul %g3, %e2.save {aicf.id = "d2", aicf.src = ["d2"]} : tensor<8x16xf32>
  %w2 = logical.matmul %e1.save, %d2 {transpose_a, aicf.id = "w2", aicf.src = ["w2"]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %g2 = logical.matmul %d2, %w {transpose_b, aicf.id = "g2", aicf.src = ["g2"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %d1 = logical.mul %g2, %e1.save {aicf.id = "d1", aicf.src = ["d1"]} : tensor<8x16xf32>
  %w1 = logical.matmul %e0.save, %d1 {transpose_a, aicf.id = "w1", aicf.src = ["w1"]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %g1 = logical.matmul %d1, %w {transpose_b, aicf.id = "g1", aicf.src = ["g1"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %d0 = logical.mul %g1, %e0.save {aicf.id = "d0", aicf.src = ["d0"]} : tensor<8x16xf32>
  %w0 = logical.matmul %x, %d0 {transpose_a, aicf.id = "w0", aicf.src = ["w0"]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  func.return %w0, %w1, %w2, %w3 : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}
