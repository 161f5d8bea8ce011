// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-epilogues' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"fusion\": {\"epilogue\": false}}"},fuse-epilogues' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"fc.act\"]]}"},fuse-epilogues' | filecheck %s --check-prefix=PINNED

// CHECK: emit.decision "fuse-epilogues" ["fc", "fc.matmul", "fc.bias", "fc.act", "fc.residual"] choice "one kernel for 4 ops" because "the pointwise ops run on the accumulator, so the product is written once and never read back"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["shared"] choice "alone" because "the elementwise ops after it have several results with other consumers, and an epilogue writes one" rejected {{{.*}}"with it, the instruction would write several results, or one of a wider type"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["first"] choice "alone" because "no elementwise op is its only consumer"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["second", "second.act"] choice "one kernel for 2 ops"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["rows"] choice "alone" because "no elementwise op is its only consumer"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["gate", "square", "gate.sigmoid", "gate.product", "gate.sum"] choice "one kernel for 5 ops"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["post", "post.residual"] choice "one kernel for 2 ops"
// CHECK-NEXT: }

// OFF: emit.decision "fuse-epilogues" ["fc", "fc.matmul"] choice "alone" because "epilogue fusion is off by policy (fusion.epilogue)"
// PINNED: emit.decision "fuse-epilogues" ["fc", "fc.matmul", "fc.bias"] choice "one kernel for 2 ops"

// Bias, activation and residual join; the broadcast that feeds the bias is cloned into the group.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: logical.broadcast
// CHECK-NEXT: %y = emit.group "fc" from ["fc", "act", "residual"] ins(%x_1 = %x : tensor<4x8xf32>, %w_1 = %w : tensor<8x8xf32>, %b_1 = %b : tensor<8xf32>) -> (tensor<4x8xf32>) {
// CHECK-NEXT:   logical.matmul %x_1, %w_1
// CHECK-NEXT:   logical.broadcast %b_1
// CHECK-NEXT:   logical.add
// CHECK-NEXT:   logical.relu
// CHECK-NEXT:   logical.add %{{.*}}, %x_1
// CHECK-NEXT:   emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %y
// OFF-LABEL: func.func @chain
// OFF: emit.group "fc" from ["fc"]
// OFF: logical.relu
// PINNED-LABEL: func.func @chain
// PINNED: emit.group "fc" from ["fc"]
// PINNED: emit.yield
// PINNED-NEXT: }
// PINNED-NEXT: logical.relu
func.func @chain(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<8xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "fc.matmul", aicf.src = ["fc"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %bb = logical.broadcast %b {dimensions = [1], aicf.id = "fc.broadcast", aicf.src = ["fc"]} : tensor<8xf32> -> tensor<4x8xf32>
  %s = logical.add %m, %bb {aicf.id = "fc.bias", aicf.src = ["fc"]} : tensor<4x8xf32>
  %a = logical.relu %s {aicf.id = "fc.act", aicf.src = ["act"]} : tensor<4x8xf32>
  %y = logical.add %a, %x {aicf.id = "fc.residual", aicf.src = ["residual"]} : tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// A product that is returned too is written in any case: nothing joins it.
// CHECK-LABEL: func.func @shared
// CHECK: emit.group "shared"
// CHECK: logical.relu %m
func.func @shared(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<4x8xf32> {logical.name = "y"}, tensor<4x8xf32> {logical.name = "m"}) {
  %m = logical.matmul %x, %w {aicf.id = "shared", aicf.src = ["shared"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %a = logical.relu %m {aicf.id = "shared.act", aicf.src = ["shared.act"]} : tensor<4x8xf32>
  func.return %a, %m : tensor<4x8xf32>, tensor<4x8xf32>
}

// A second product never joins the first.
// CHECK-LABEL: func.func @two
// CHECK: emit.group "first"
// CHECK: emit.group "second" from ["second", "second.act"]
func.func @two(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "first", aicf.src = ["first"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %n = logical.matmul %m, %w {aicf.id = "second", aicf.src = ["second"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %a = logical.tanh %n {aicf.id = "second.act", aicf.src = ["second.act"]} : tensor<4x8xf32>
  func.return %a : tensor<4x8xf32>
}

// A reduction is no epilogue.
// CHECK-LABEL: func.func @rows
// CHECK: emit.group "rows"
// CHECK: logical.reduce_sum
func.func @rows(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "rows", aicf.src = ["rows"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %r = logical.reduce_sum %m {axes = [1], aicf.id = "rows.sum", aicf.src = ["rows.sum"]} : tensor<4x8xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// All users count, not neighbours: both readers of the product join, and so does what only the epilogue needs (the
// squared input).
// CHECK-LABEL: func.func @gate
// CHECK: emit.group "gate" from ["gate", "square", "gate.sigmoid", "gate.product", "gate.sum"]
func.func @gate(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "gate", aicf.src = ["gate"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %q = logical.mul %x, %x {aicf.id = "square", aicf.src = ["square"]} : tensor<4x8xf32>
  %s = logical.sigmoid %m {aicf.id = "gate.sigmoid", aicf.src = ["gate.sigmoid"]} : tensor<4x8xf32>
  %p = logical.mul %m, %s {aicf.id = "gate.product", aicf.src = ["gate.product"]} : tensor<4x8xf32>
  %g = logical.add %p, %q {aicf.id = "gate.sum", aicf.src = ["gate.sum"]} : tensor<4x8xf32>
  func.return %g : tensor<4x8xf32>
}

// A residual after a product is the product's, and the norm after it a kernel of its own: the sum is written once and
// read once, as if the norm had taken it. A sum that the norm widens is written narrow.
// CHECK-LABEL: func.func @post_norm
// CHECK: %[[H:.*]] = emit.group "post" from ["post"] ins({{.*}}) -> (tensor<4x8xf32>)
// CHECK: logical.cast %[[H]]
func.func @post_norm(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4xf64> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "post", aicf.src = ["post"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %h = logical.add %m, %x {aicf.id = "post.residual", aicf.src = ["post"]} : tensor<4x8xf32>
  %v = logical.cast %h {aicf.id = "post.widen", aicf.src = ["norm"]} : tensor<4x8xf32> -> tensor<4x8xf64>
  %s = logical.reduce_sum %v {axes = [1], aicf.id = "post.sum", aicf.src = ["norm"]} : tensor<4x8xf64> -> tensor<4xf64>
  func.return %s : tensor<4xf64>
}
