// RUN: aicf-opt %s -p 'assign-ids,merge-linears' | filecheck %s
// RUN: aicf-opt %s -p 'assign-ids,merge-linears,differentiate,logical-dce' | filecheck %s --check-prefix GRADIENTS
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,apply-policy{policy="{\"fusion\": {\"horizontal\": false}}"},merge-linears' | filecheck %s --check-prefix OFF
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,apply-policy{policy="{\"groups\": [[\"d1\"]]}"},merge-linears' | filecheck %s --check-prefix PINNED

// CHECK: emit.decision "merge-linears" ["q.merged", "q", "k"] choice "one linear for 2" because "they read one operand: the gradients of its weights are one product, and that of the operand is one"
// CHECK-NEXT: emit.decision "merge-linears" ["no_gradient"] choice "not merged" because "its weight gets no gradient, and would have one computed as part of the others'"
// CHECK-NEXT: emit.decision "merge-linears" ["no_cast"] choice "not merged" because "its weight is a parameter as it is, and would be copied beside the others in every step"
// CHECK-NEXT: emit.decision "merge-linears" ["unaligned"] choice "not merged" because "a row of its 3 outputs takes 6 bytes, and kernels copy rows that begin at multiples of 16"
// CHECK-NEXT: emit.decision "merge-linears" ["computed"] choice "not merged" because "its weight is computed of other values: casts of parameters alone are written side by side"
// CHECK-NEXT: emit.decision "merge-linears" ["one", "biased"] choice "not merged" because "one has a bias and the other has none; give both one to merge them"
// CHECK-NEXT: emit.decision "merge-linears" ["returned"] choice "not merged" because "the program returns its result, which has memory of its own"
// CHECK-NEXT: emit.decision "merge-linears" ["one.merged", "one", "two"] choice "one linear for 2"
// CHECK-NEXT: emit.decision "merge-linears" ["a", "c"] choice "not merged" because "'b', a product between them, follows from the first: the second one's result would be kept in memory while it runs; compute 'c' before 'b' to merge them"
// CHECK-NEXT: emit.decision "merge-linears" ["d1.merged", "d1", "e1"] choice "one linear for 2"
// CHECK-NEXT: emit.decision "merge-linears" ["d2.merged", "d2", "e2"] choice "one linear for 2"
// CHECK-NEXT: emit.decision "merge-linears" ["o", "p"] choice "not merged" because "other losses depend on one than on the other"
// CHECK-NEXT: emit.decision "merge-linears" ["u"] choice "not merged" because "no loss depends on it"
// CHECK-NEXT: }
// OFF: emit.decision "merge-linears" ["q", "k"] choice "not merged" because "products side by side are off by policy (fusion.horizontal)"
// PINNED: emit.decision "merge-linears" ["d1"] choice "not merged" because "the policy lists it in its groups"
// PINNED-NEXT: emit.decision "merge-linears" ["d2.merged", "d2", "e2"]

// Weights and biases lie side by side, whose casts stand before the first linear now, and each reader gets its slice.
// CHECK-LABEL: func.func @qkv
// CHECK: %q.weights = logical.concat %wq.half, %wk.half {axis = 0, aicf.id = "q.weights", aicf.src = ["q", "k"]}
// CHECK: %q.biases = logical.concat %bq.half, %bk.half {axis = 0
// CHECK-NEXT: %q.merged = logical.linear %x, %q.weights, %q.biases {aicf.id = "q.merged", aicf.src = ["q", "k"]}
// CHECK-NEXT: %q = logical.slice %q.merged {starts = [0, 0], sizes = [4, 16], strides = [1, 1], aicf.id = "q", aicf.src = ["q"]}
// CHECK-NEXT: logical.relu %q
// CHECK-NEXT: %k = logical.slice %q.merged {starts = [0, 16], sizes = [4, 8], strides = [1, 1], aicf.id = "k", aicf.src = ["k"]}
// The slices cover the result: their gradients are joined, and are the operand of one product and one sum each.
// GRADIENTS-LABEL: func.func @qkv
// GRADIENTS: %q.grad.joined = logical.concat %q.act.grad.select, %qkv.wide1.grad.cast {axis = 1
// GRADIENTS-NEXT: %q.merged.grad.operand = logical.matmul %q.grad.joined, %q.weights.save
// GRADIENTS-NEXT: %q.merged.grad.weight = logical.matmul %q.grad.joined, %x.save {transpose_a
// GRADIENTS-NEXT: %q.merged.grad.sum = logical.reduce_sum %q.grad.joined {axes = [0]
// GRADIENTS-NEXT: %q.biases.grad.part0 = logical.slice %q.merged.grad.sum
// GRADIENTS-NEXT: %q.biases.grad.part1 = logical.slice %q.merged.grad.sum
// GRADIENTS: %q.weights.grad.part0 = logical.slice %q.merged.grad.weight {starts = [0, 0], sizes = [16, 8]
// GRADIENTS-NEXT: %q.weights.grad.part1 = logical.slice %q.merged.grad.weight {starts = [16, 0], sizes = [8, 8]
// OFF-LABEL: func.func @qkv
// OFF-NOT: logical.concat
func.func @qkv(
    %h : tensor<4x8xf32> {logical.name = "h", logical.role = "param"},
    %wq : tensor<16x8xf32> {logical.name = "wq", logical.role = "param"},
    %bq : tensor<16xf32> {logical.name = "bq", logical.role = "param"},
    %wk : tensor<8x8xf32> {logical.name = "wk", logical.role = "param"},
    %bk : tensor<8xf32> {logical.name = "bk", logical.role = "param"})
    -> (tensor<f32> {logical.name = "qkv.loss"}, tensor<4x8xf32> {logical.name = "qkv.dh"}, tensor<16x8xf32> {logical.name = "qkv.dwq"}, tensor<16xf32> {logical.name = "qkv.dbq"}, tensor<8x8xf32> {logical.name = "qkv.dwk"}, tensor<8xf32> {logical.name = "qkv.dbk"}) {
  %x = logical.cast %h : tensor<4x8xf32> -> tensor<4x8xbf16>
  %wq.half = logical.cast %wq : tensor<16x8xf32> -> tensor<16x8xbf16>
  %bq.half = logical.cast %bq : tensor<16xf32> -> tensor<16xbf16>
  %q = logical.linear %x, %wq.half, %bq.half : (tensor<4x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>) -> tensor<4x16xbf16>
  %q.act = logical.relu %q : tensor<4x16xbf16>
  %wk.half = logical.cast %wk : tensor<8x8xf32> -> tensor<8x8xbf16>
  %bk.half = logical.cast %bk : tensor<8xf32> -> tensor<8xbf16>
  %k = logical.linear %x, %wk.half, %bk.half : (tensor<4x8xbf16>, tensor<8x8xbf16>, tensor<8xbf16>) -> tensor<4x8xbf16>
  %qkv.wide0 = logical.cast %q.act : tensor<4x16xbf16> -> tensor<4x16xf32>
  %qkv.square0 = logical.mul %qkv.wide0, %qkv.wide0 : tensor<4x16xf32>
  %qkv.sum0 = logical.reduce_sum %qkv.square0 {axes = [0, 1]} : tensor<4x16xf32> -> tensor<f32>
  %qkv.wide1 = logical.cast %k : tensor<4x8xbf16> -> tensor<4x8xf32>
  %qkv.square1 = logical.mul %qkv.wide1, %qkv.wide1 : tensor<4x8xf32>
  %qkv.sum1 = logical.reduce_sum %qkv.square1 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %qkv.total1 = logical.add %qkv.sum0, %qkv.sum1 : tensor<f32>
  %qkv.dh = logical.gradient %qkv.total1, %h : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %qkv.dwq = logical.gradient %qkv.total1, %wq : (tensor<f32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %qkv.dbq = logical.gradient %qkv.total1, %bq : (tensor<f32>, tensor<16xf32>) -> tensor<16xf32>
  %qkv.dwk = logical.gradient %qkv.total1, %wk : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %qkv.dbk = logical.gradient %qkv.total1, %bk : (tensor<f32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %qkv.total1, %qkv.dh, %qkv.dwq, %qkv.dbq, %qkv.dwk, %qkv.dbk : tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>, tensor<8x8xf32>, tensor<8xf32>
}

// Of all that read one operand, two are alike; each of the others has a reason of its own.
// CHECK-LABEL: func.func @apart
// CHECK: %one.merged = logical.linear %x, %one.weights
// CHECK-COUNT-6: logical.linear %x
// CHECK-NOT: logical.linear
func.func @apart(
    %x : tensor<4x8xbf16> {logical.name = "x", logical.role = "input"},
    %w1 : tensor<8x8xf32> {logical.name = "w1", logical.role = "param"},
    %w2 : tensor<8x8xf32> {logical.name = "w2", logical.role = "param"},
    %frozen : tensor<8x8xf32> {logical.name = "frozen", logical.role = "param"},
    %plain : tensor<8x8xbf16> {logical.name = "plain", logical.role = "param"},
    %odd : tensor<3x8xf32> {logical.name = "odd", logical.role = "param"},
    %square : tensor<8x8xf32> {logical.name = "square", logical.role = "param"},
    %w3 : tensor<8x8xf32> {logical.name = "w3", logical.role = "param"},
    %b3 : tensor<8xf32> {logical.name = "b3", logical.role = "param"},
    %given : tensor<8x8xf32> {logical.name = "given", logical.role = "param"})
    -> (tensor<f32> {logical.name = "apart.loss"}, tensor<4x8xbf16> {logical.name = "y"}, tensor<8x8xf32> {logical.name = "apart.dw1"}, tensor<8x8xf32> {logical.name = "apart.dw2"}, tensor<8x8xbf16> {logical.name = "apart.dplain"}, tensor<3x8xf32> {logical.name = "apart.dodd"}, tensor<8x8xf32> {logical.name = "apart.dsquare"}, tensor<8x8xf32> {logical.name = "apart.dw3"}, tensor<8x8xf32> {logical.name = "apart.dgiven"}) {
  %w1.half = logical.cast %w1 : tensor<8x8xf32> -> tensor<8x8xbf16>
  %w2.half = logical.cast %w2 : tensor<8x8xf32> -> tensor<8x8xbf16>
  %frozen.half = logical.cast %frozen : tensor<8x8xf32> -> tensor<8x8xbf16>
  %odd.half = logical.cast %odd : tensor<3x8xf32> -> tensor<3x8xbf16>
  %w3.half = logical.cast %w3 : tensor<8x8xf32> -> tensor<8x8xbf16>
  %given.half = logical.cast %given : tensor<8x8xf32> -> tensor<8x8xbf16>
  %b3.half = logical.cast %b3 : tensor<8xf32> -> tensor<8xbf16>
  %turned = logical.transpose %square {permutation = [1, 0]} : tensor<8x8xf32> -> tensor<8x8xf32>
  %turned.half = logical.cast %turned : tensor<8x8xf32> -> tensor<8x8xbf16>
  %one = logical.linear %x, %w1.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %no_gradient = logical.linear %x, %frozen.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %no_cast = logical.linear %x, %plain : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %unaligned = logical.linear %x, %odd.half : (tensor<4x8xbf16>, tensor<3x8xbf16>) -> tensor<4x3xbf16>
  %computed = logical.linear %x, %turned.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %biased = logical.linear %x, %w3.half, %b3.half : (tensor<4x8xbf16>, tensor<8x8xbf16>, tensor<8xbf16>) -> tensor<4x8xbf16>
  %returned = logical.linear %x, %given.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %two = logical.linear %x, %w2.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %apart.wide0 = logical.cast %one : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square0 = logical.mul %apart.wide0, %apart.wide0 : tensor<4x8xf32>
  %apart.sum0 = logical.reduce_sum %apart.square0 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.wide1 = logical.cast %no_gradient : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square1 = logical.mul %apart.wide1, %apart.wide1 : tensor<4x8xf32>
  %apart.sum1 = logical.reduce_sum %apart.square1 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.total1 = logical.add %apart.sum0, %apart.sum1 : tensor<f32>
  %apart.wide2 = logical.cast %no_cast : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square2 = logical.mul %apart.wide2, %apart.wide2 : tensor<4x8xf32>
  %apart.sum2 = logical.reduce_sum %apart.square2 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.total2 = logical.add %apart.total1, %apart.sum2 : tensor<f32>
  %apart.wide3 = logical.cast %unaligned : tensor<4x3xbf16> -> tensor<4x3xf32>
  %apart.square3 = logical.mul %apart.wide3, %apart.wide3 : tensor<4x3xf32>
  %apart.sum3 = logical.reduce_sum %apart.square3 {axes = [0, 1]} : tensor<4x3xf32> -> tensor<f32>
  %apart.total3 = logical.add %apart.total2, %apart.sum3 : tensor<f32>
  %apart.wide4 = logical.cast %computed : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square4 = logical.mul %apart.wide4, %apart.wide4 : tensor<4x8xf32>
  %apart.sum4 = logical.reduce_sum %apart.square4 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.total4 = logical.add %apart.total3, %apart.sum4 : tensor<f32>
  %apart.wide5 = logical.cast %biased : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square5 = logical.mul %apart.wide5, %apart.wide5 : tensor<4x8xf32>
  %apart.sum5 = logical.reduce_sum %apart.square5 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.total5 = logical.add %apart.total4, %apart.sum5 : tensor<f32>
  %apart.wide6 = logical.cast %returned : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square6 = logical.mul %apart.wide6, %apart.wide6 : tensor<4x8xf32>
  %apart.sum6 = logical.reduce_sum %apart.square6 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.total6 = logical.add %apart.total5, %apart.sum6 : tensor<f32>
  %apart.wide7 = logical.cast %two : tensor<4x8xbf16> -> tensor<4x8xf32>
  %apart.square7 = logical.mul %apart.wide7, %apart.wide7 : tensor<4x8xf32>
  %apart.sum7 = logical.reduce_sum %apart.square7 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %apart.total7 = logical.add %apart.total6, %apart.sum7 : tensor<f32>
  %apart.dw1 = logical.gradient %apart.total7, %w1 : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %apart.dw2 = logical.gradient %apart.total7, %w2 : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %apart.dplain = logical.gradient %apart.total7, %plain : (tensor<f32>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
  %apart.dodd = logical.gradient %apart.total7, %odd : (tensor<f32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %apart.dsquare = logical.gradient %apart.total7, %square : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %apart.dw3 = logical.gradient %apart.total7, %w3 : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %apart.dgiven = logical.gradient %apart.total7, %given : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %apart.total7, %returned, %apart.dw1, %apart.dw2, %apart.dplain, %apart.dodd, %apart.dsquare, %apart.dw3, %apart.dgiven : tensor<f32>, tensor<4x8xbf16>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xbf16>, tensor<3x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// A linear that the program comes to after a product of the other one's result.
// CHECK-LABEL: func.func @far
// CHECK-NOT: logical.concat
func.func @far(
    %x : tensor<4x8xbf16> {logical.name = "x", logical.role = "input"},
    %wa : tensor<8x8xf32> {logical.name = "wa", logical.role = "param"},
    %wb : tensor<8x8xf32> {logical.name = "wb", logical.role = "param"},
    %wc : tensor<8x8xf32> {logical.name = "wc", logical.role = "param"})
    -> (tensor<f32> {logical.name = "far.loss"}, tensor<8x8xf32> {logical.name = "far.dwa"}, tensor<8x8xf32> {logical.name = "far.dwb"}, tensor<8x8xf32> {logical.name = "far.dwc"}) {
  %wa.half = logical.cast %wa : tensor<8x8xf32> -> tensor<8x8xbf16>
  %wb.half = logical.cast %wb : tensor<8x8xf32> -> tensor<8x8xbf16>
  %wc.half = logical.cast %wc : tensor<8x8xf32> -> tensor<8x8xbf16>
  %a = logical.linear %x, %wa.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %b = logical.linear %a, %wb.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %c = logical.linear %x, %wc.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %far.wide0 = logical.cast %b : tensor<4x8xbf16> -> tensor<4x8xf32>
  %far.square0 = logical.mul %far.wide0, %far.wide0 : tensor<4x8xf32>
  %far.sum0 = logical.reduce_sum %far.square0 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %far.wide1 = logical.cast %c : tensor<4x8xbf16> -> tensor<4x8xf32>
  %far.square1 = logical.mul %far.wide1, %far.wide1 : tensor<4x8xf32>
  %far.sum1 = logical.reduce_sum %far.square1 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %far.total1 = logical.add %far.sum0, %far.sum1 : tensor<f32>
  %far.dwa = logical.gradient %far.total1, %wa : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %far.dwb = logical.gradient %far.total1, %wb : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %far.dwc = logical.gradient %far.total1, %wc : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %far.total1, %far.dwa, %far.dwb, %far.dwc : tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// Layers that share their weights read one concatenation, and what they pass back to it is added as a whole.
// CHECK-LABEL: func.func @shared
// CHECK: %d1.merged = logical.linear %x, %d1.weights
// CHECK: %d2.merged = logical.linear %s, %d1.weights
// GRADIENTS-LABEL: func.func @shared
// GRADIENTS: %d1.merged.grad.total = logical.add %d2.merged.grad.weight, %d1.merged.grad.weight
// GRADIENTS: logical.slice %d1.merged.grad.total {starts = [0, 0]
// GRADIENTS: logical.slice %d1.merged.grad.total {starts = [8, 0]
func.func @shared(
    %x : tensor<4x8xbf16> {logical.name = "x", logical.role = "input"},
    %wd : tensor<8x8xf32> {logical.name = "wd", logical.role = "param"},
    %we : tensor<8x8xf32> {logical.name = "we", logical.role = "param"})
    -> (tensor<f32> {logical.name = "shared.loss"}, tensor<8x8xf32> {logical.name = "shared.dwd"}, tensor<8x8xf32> {logical.name = "shared.dwe"}) {
  %wd.half = logical.cast %wd : tensor<8x8xf32> -> tensor<8x8xbf16>
  %we.half = logical.cast %we : tensor<8x8xf32> -> tensor<8x8xbf16>
  %d1 = logical.linear %x, %wd.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %e1 = logical.linear %x, %we.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %s = logical.add %d1, %e1 : tensor<4x8xbf16>
  %d2 = logical.linear %s, %wd.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %e2 = logical.linear %s, %we.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %shared.wide0 = logical.cast %d2 : tensor<4x8xbf16> -> tensor<4x8xf32>
  %shared.square0 = logical.mul %shared.wide0, %shared.wide0 : tensor<4x8xf32>
  %shared.sum0 = logical.reduce_sum %shared.square0 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %shared.wide1 = logical.cast %e2 : tensor<4x8xbf16> -> tensor<4x8xf32>
  %shared.square1 = logical.mul %shared.wide1, %shared.wide1 : tensor<4x8xf32>
  %shared.sum1 = logical.reduce_sum %shared.square1 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %shared.total1 = logical.add %shared.sum0, %shared.sum1 : tensor<f32>
  %shared.dwd = logical.gradient %shared.total1, %wd : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %shared.dwe = logical.gradient %shared.total1, %we : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %shared.total1, %shared.dwd, %shared.dwe : tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// What one loss does not depend on has no gradient, which merged it would have.
// CHECK-LABEL: func.func @losses
// CHECK-NOT: logical.concat
func.func @losses(
    %x : tensor<4x8xbf16> {logical.name = "x", logical.role = "input"},
    %wo : tensor<8x8xf32> {logical.name = "wo", logical.role = "param"},
    %wp : tensor<8x8xf32> {logical.name = "wp", logical.role = "param"},
    %wu : tensor<8x8xf32> {logical.name = "wu", logical.role = "param"})
    -> (tensor<4x8xbf16> {logical.name = "u.act"}, tensor<f32> {logical.name = "losses.loss"}, tensor<8x8xf32> {logical.name = "losses.dwo"}, tensor<f32> {logical.name = "others.loss"}, tensor<8x8xf32> {logical.name = "others.dwp"}) {
  %wo.half = logical.cast %wo : tensor<8x8xf32> -> tensor<8x8xbf16>
  %wp.half = logical.cast %wp : tensor<8x8xf32> -> tensor<8x8xbf16>
  %wu.half = logical.cast %wu : tensor<8x8xf32> -> tensor<8x8xbf16>
  %o = logical.linear %x, %wo.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %p = logical.linear %x, %wp.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %u = logical.linear %x, %wu.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %u.act = logical.relu %u : tensor<4x8xbf16>
  %losses.wide0 = logical.cast %o : tensor<4x8xbf16> -> tensor<4x8xf32>
  %losses.square0 = logical.mul %losses.wide0, %losses.wide0 : tensor<4x8xf32>
  %losses.sum0 = logical.reduce_sum %losses.square0 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %losses.dwo = logical.gradient %losses.sum0, %wo : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %others.wide0 = logical.cast %p : tensor<4x8xbf16> -> tensor<4x8xf32>
  %others.square0 = logical.mul %others.wide0, %others.wide0 : tensor<4x8xf32>
  %others.sum0 = logical.reduce_sum %others.square0 {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>
  %others.dwp = logical.gradient %others.sum0, %wp : (tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %u.act, %losses.sum0, %losses.dwo, %others.sum0, %others.dwp : tensor<4x8xbf16>, tensor<f32>, tensor<8x8xf32>, tensor<f32>, tensor<8x8xf32>
}

// Without gradients nothing changes.
// CHECK-LABEL: func.func @model
// CHECK-NOT: logical.concat
func.func @model(
    %x : tensor<4x8xbf16> {logical.name = "x", logical.role = "input"},
    %wm : tensor<8x8xf32> {logical.name = "wm", logical.role = "param"},
    %wn : tensor<8x8xf32> {logical.name = "wn", logical.role = "param"})
    -> (tensor<4x8xbf16> {logical.name = "mn"}) {
  %wm.half = logical.cast %wm : tensor<8x8xf32> -> tensor<8x8xbf16>
  %wn.half = logical.cast %wn : tensor<8x8xf32> -> tensor<8x8xbf16>
  %m = logical.linear %x, %wm.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %n = logical.linear %x, %wn.half : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %mn = logical.add %m, %n : tensor<4x8xbf16>
  func.return %mn : tensor<4x8xbf16>
}
