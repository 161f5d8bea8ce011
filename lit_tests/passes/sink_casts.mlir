// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,sink-casts' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,sink-casts' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,fuse-multi-output,sink-casts' | filecheck %s --check-prefix=JOINED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"fusion\": {\"elementwise\": false}}"},fuse-elementwise,sink-casts' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"wide\"], [\"scale\", \"scale.sum\"]]}"},fuse-elementwise,sink-casts' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"wide.scale\", \"scale\", \"scale.sum\"], [\"wide.shift\", \"shift\"]]}"},fuse-elementwise,sink-casts' | filecheck %s --check-prefix=LISTED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"scale\": \"cpu.generated\"}}"},fuse-elementwise,sink-casts' | filecheck %s --check-prefix=NAMED

// CHECK: emit.decision "sink-casts" ["wide", "wide.shift"] choice "done by each of its 2 consumers" because "a cast in registers costs next to nothing, and the wider values need no memory" cost {unfused_us = {{.*}}, fused_us = {{.*}}}
// CHECK-NOT: emit.decision "sink-casts" ["{{kept|low|product}}
// JOINED: emit.decision "sink-casts" ["rest.wide", "rest.wide.shared.sum"] choice "done by its consumer"
// PINNED: emit.decision "sink-casts" ["wide"] choice "not fused" because "the policy's groups keep them in different instructions"
// NAMED: emit.decision "sink-casts" ["wide"] choice "not fused" because "the policy gives a kernel or record to 'scale', which would be no instruction of its own: drop that entry"

// Both sums of a norm's backward part read the gradient: each widens it, and the wide one is nowhere in memory.
// CHECK-LABEL: func.func @gradients
// CHECK: emit.group "wide" from ["wide", "scale", "scale.sum"] ins(%{{.*}} = %x : tensor<64x32xbf16>, %{{.*}} = %n : tensor<64x32xf32>) -> (tensor<32xf32>) {
// CHECK-NEXT: logical.cast %{{.*}} {aicf.id = "wide.scale", aicf.src = ["wide"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
// CHECK: emit.group "wide.shift" from ["wide", "shift"] ins(%{{.*}} = %x : tensor<64x32xbf16>) -> (tensor<32xf32>) {
// JOINED-LABEL: func.func @gradients
// JOINED-NOT: -> (tensor<64x32xf32>
// JOINED: emit.group {{.*}} ins(%{{.*}} = %x : tensor<64x32xbf16>, %{{.*}} = %n : tensor<64x32xf32>) -> (tensor<32xf32>, tensor<32xf32>) {
// OFF-LABEL: func.func @gradients
// OFF: emit.group "wide" from ["wide"]
// PINNED-LABEL: func.func @gradients
// PINNED: emit.group "wide" from ["wide"]
// LISTED-LABEL: func.func @gradients
// LISTED: emit.group "wide" from ["wide", "scale", "scale.sum"]
// LISTED: emit.group "wide.shift" from ["wide", "shift"]
// NAMED-LABEL: func.func @gradients
// NAMED: emit.group "wide" from ["wide"]
func.func @gradients(
    %x : tensor<64x32xbf16> {logical.name = "x", logical.role = "input"},
    %n : tensor<64x32xf32> {logical.name = "n", logical.role = "input"})
    -> (tensor<32xf32> {logical.name = "scale"}, tensor<32xf32> {logical.name = "shift"}) {
  %w = logical.cast %x {aicf.id = "wide", aicf.src = ["wide"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
  %m = logical.mul %w, %n {aicf.id = "scale", aicf.src = ["scale"]} : tensor<64x32xf32>
  %a = logical.reduce_sum %m {axes = [0], aicf.id = "scale.sum", aicf.src = ["scale.sum"]} : tensor<64x32xf32> -> tensor<32xf32>
  %b = logical.reduce_sum %w {axes = [0], aicf.id = "shift", aicf.src = ["shift"]} : tensor<64x32xf32> -> tensor<32xf32>
  func.return %a, %b : tensor<32xf32>, tensor<32xf32>
}

// A group with another result keeps that, and what it needs: the rows, not the wide values, are in memory.
// CHECK-LABEL: func.func @among_others
// JOINED-LABEL: func.func @among_others
// JOINED: emit.group {{.*}} -> (tensor<64xf32>) {
// JOINED: emit.group "rest.wide.shared.sum" {{.*}} ins(%{{.*}} = %x : tensor<64x32xbf16>, %{{.*}} : tensor<64xf32>) -> (tensor<32xf32>) {
func.func @among_others(%x : tensor<64x32xbf16> {logical.name = "x", logical.role = "input"})
    -> (tensor<64xf32> {logical.name = "rows"}, tensor<32xf32> {logical.name = "columns"}) {
  %w = logical.cast %x {aicf.id = "rest.wide", aicf.src = ["rest.wide"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
  %r = logical.reduce_sum %w {axes = [1], aicf.id = "rest.sum", aicf.src = ["rest.sum"]} : tensor<64x32xf32> -> tensor<64xf32>
  %s = logical.broadcast %r {dimensions = [0], aicf.id = "shared.rows", aicf.src = ["shared.rows"]} : tensor<64xf32> -> tensor<64x32xf32>
  %m = logical.mul %w, %s {aicf.id = "shared.sum", aicf.src = ["shared.sum"]} : tensor<64x32xf32>
  %c = logical.reduce_sum %m {axes = [0], aicf.id = "shared.columns", aicf.src = ["shared.columns"]} : tensor<64x32xf32> -> tensor<32xf32>
  func.return %r, %c : tensor<64xf32>, tensor<32xf32>
}

// One that others read too stays: the function gives it.
// CHECK-LABEL: func.func @kept
// CHECK: emit.group "kept.wide" from ["kept.wide"]
func.func @kept(%x : tensor<64x32xbf16> {logical.name = "x", logical.role = "input"})
    -> (tensor<64x32xf32> {logical.name = "wide"}, tensor<32xf32> {logical.name = "sum"}) {
  %w = logical.cast %x {aicf.id = "kept.wide", aicf.src = ["kept.wide"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
  %b = logical.reduce_sum %w {axes = [0], aicf.id = "kept.sum", aicf.src = ["kept.sum"]} : tensor<64x32xf32> -> tensor<32xf32>
  func.return %w, %b : tensor<64x32xf32>, tensor<32xf32>
}

// One to narrower elements stays: its readers read less.
// CHECK-LABEL: func.func @narrowed
// CHECK: emit.group "low" from ["low"]
func.func @narrowed(%x : tensor<64x32xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<64xbf16> {logical.name = "rows"}, tensor<32xbf16> {logical.name = "columns"}) {
  %l = logical.cast %x {aicf.id = "low", aicf.src = ["low"]} : tensor<64x32xf32> -> tensor<64x32xbf16>
  %r = logical.reduce_sum %l {axes = [1], aicf.id = "rows", aicf.src = ["rows"]} : tensor<64x32xbf16> -> tensor<64xbf16>
  %c = logical.reduce_sum %l {axes = [0], aicf.id = "columns", aicf.src = ["columns"]} : tensor<64x32xbf16> -> tensor<32xbf16>
  func.return %r, %c : tensor<64xbf16>, tensor<32xbf16>
}

// A product reads it as well: it has to be in memory.
// CHECK-LABEL: func.func @multiplied
// CHECK: emit.group "product.wide" from ["product.wide"]
func.func @multiplied(
    %x : tensor<64x32xbf16> {logical.name = "x", logical.role = "input"},
    %k : tensor<32x16xf32> {logical.name = "k", logical.role = "input"})
    -> (tensor<64x16xf32> {logical.name = "y"}, tensor<32xf32> {logical.name = "sum"}) {
  %w = logical.cast %x {aicf.id = "product.wide", aicf.src = ["product.wide"]} : tensor<64x32xbf16> -> tensor<64x32xf32>
  %y = logical.matmul %w, %k {aicf.id = "product", aicf.src = ["product"]} : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
  %b = logical.reduce_sum %w {axes = [0], aicf.id = "product.sum", aicf.src = ["product.sum"]} : tensor<64x32xf32> -> tensor<32xf32>
  func.return %y, %b : tensor<64x16xf32>, tensor<32xf32>
}
