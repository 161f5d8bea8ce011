// RUN: aicf-opt %s -p 'assign-ids,merge-products' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,apply-policy{policy="{\"fusion\": {\"horizontal\": false}}"},merge-products' | filecheck %s --check-prefix OFF
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,apply-policy{policy="{\"execution\": {\"prepared_weights\": false}}"},merge-products' | filecheck %s --check-prefix UNPREPARED
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,apply-policy{policy="{\"groups\": [[\"k\"]]}"},merge-products' | filecheck %s --check-prefix LISTED
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,apply-policy{policy="{\"kernels\": {\"q\": \"reference.body\", \"k\": \"reference.body\"}}"},merge-products' | filecheck %s --check-prefix PINNED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,merge-products' | filecheck %s --check-prefix FUSES

// CHECK: emit.decision "merge-products" ["q.merged", "q", "k", "v"] choice "one product for 3" because "weights side by side are one weight for every kernel, the operand is read once, and consumers read slices through strides" rejected {"one kernel for weights where they lie" = "it would need them all of one width"} cost {copied_bytes = 1024 : i64}
// CHECK: emit.decision "merge-products" ["biased.q.merged", "biased.q", "biased.k"] choice "one product for 2"
// CHECK: emit.decision "merge-products" ["packed.gate.merged", "packed.gate", "packed.up"] choice "one product for 2"
// CHECK: emit.decision "merge-products" ["plain"] choice "not merged" because "'active' reads it alone, and is fused with the product alone"
// CHECK-NEXT: emit.decision "merge-products" ["returned"] choice "not merged" because "the program returns its result, which has memory of its own"
// CHECK-NEXT: emit.decision "merge-products" ["narrow"] choice "not merged" because "a row of its 3 outputs takes 12 bytes, and kernels read rows that begin at multiples of 16"
// CHECK-NEXT: emit.decision "merge-products" ["one", "other"] choice "not merged" because "they read one operand, but their weights differ in type, transposition or scheme"
// CHECK-NEXT: emit.decision "merge-products" ["first", "later"] choice "not merged" because "'between', a product between them, follows from the first: the second one's result would be kept in memory while it runs; compute 'later' before 'between' to merge them"
// OFF: emit.decision "merge-products" ["q", "k", "v"] choice "not merged" because "products side by side are off by policy (fusion.horizontal)"
// UNPREPARED: emit.decision "merge-products" ["q", "k", "v"] choice "not merged" because "prepared weights are off by policy, and weights side by side would be copied at every call"
// LISTED: emit.decision "merge-products" ["k"] choice "not merged" because "the policy lists it in its groups"
// LISTED-NEXT: emit.decision "merge-products" ["q.merged", "q", "v"]
// PINNED: emit.decision "merge-products" ["q", "k"] choice "not merged" because "the policy gives the second one a kernel of its own"
// PINNED-NEXT: emit.decision "merge-products" ["q.merged", "q", "v"]
// FUSES: emit.decision "merge-products" ["block.up2"] choice "not merged" because "'block.active' reads it alone, and is fused with the product alone"
// FUSES-NEXT: emit.decision "merge-products" ["block.q.merged", "block.q", "block.k", "block.v"] choice "one product for 3"

// Weights of unequal widths lie side by side, and each reader gets its slice, which has an id of its own.
// CHECK-LABEL: func.func @qkv
// CHECK-NEXT: %q.weights = logical.concat %wq, %wk, %wv {axis = 0, aicf.id = "q.weights", aicf.src = ["q", "k", "v"]}
// CHECK-NEXT: %q.merged = logical.matmul %x, %q.weights {transpose_b, aicf.id = "q.merged", aicf.src = ["q", "k", "v"]}
// CHECK-NEXT: %q.part = logical.slice %q.merged {starts = [0, 0], sizes = [4, 16], strides = [1, 1], aicf.id = "q.part", aicf.src = ["q"]}
// CHECK-NEXT: %k.part = logical.slice %q.merged {starts = [0, 16], sizes = [4, 8], strides = [1, 1], aicf.id = "k.part", aicf.src = ["k"]}
// CHECK-NEXT: %v.part = logical.slice %q.merged {starts = [0, 24], sizes = [4, 8]
// CHECK-NEXT: logical.reshape %q.part
// CHECK-NOT: logical.matmul
// OFF-LABEL: func.func @qkv
// OFF-NOT: logical.concat
func.func @qkv(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %wq : tensor<16x8xf32> {logical.name = "wq", logical.role = "param"},
    %wk : tensor<8x8xf32> {logical.name = "wk", logical.role = "param"},
    %wv : tensor<8x8xf32> {logical.name = "wv", logical.role = "param"})
    -> (tensor<4x2x8xf32> {logical.name = "heads"}, tensor<4x1x8xf32> {logical.name = "keys"}, tensor<4x1x8xf32> {logical.name = "values"}) {
  %q = logical.matmul %x, %wq {transpose_b} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %heads = logical.reshape %q : tensor<4x16xf32> -> tensor<4x2x8xf32>
  %k = logical.matmul %x, %wk {transpose_b} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %keys = logical.reshape %k : tensor<4x8xf32> -> tensor<4x1x8xf32>
  %v = logical.matmul %x, %wv {transpose_b} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %values = logical.reshape %v : tensor<4x8xf32> -> tensor<4x1x8xf32>
  func.return %heads, %keys, %values : tensor<4x2x8xf32>, tensor<4x1x8xf32>, tensor<4x1x8xf32>
}

// Biases are side by side as well, and so are weights that lie the other way, along their columns. Casts of parameters
// move before the first product.
// CHECK-LABEL: func.func @biased
// CHECK: %[[HALF:.+]] = logical.cast %wq
// CHECK: %[[OTHER:.+]] = logical.cast %wk
// CHECK-NEXT: %biased.q.weights = logical.concat %[[HALF]], %[[OTHER]] {axis = 1
// CHECK-NEXT: %biased.q.merged = logical.matmul %x, %biased.q.weights
// CHECK-NEXT: %biased.q.biases = logical.concat %bq, %bk {axis = 0
// CHECK-NEXT: %biased.q.sum.rows = logical.broadcast %biased.q.biases {dimensions = [2]
// CHECK-NEXT: %biased.q.sum.merged = logical.add %biased.q.merged, %biased.q.sum.rows {aicf.id = "biased.q.sum.merged", aicf.src = ["biased.q.sum", "biased.q", "biased.k", "biased.k.sum"]}
// CHECK-NEXT: logical.slice %biased.q.sum.merged {starts = [0, 0, 0], sizes = [2, 4, 16]
// CHECK-NEXT: logical.slice %biased.q.sum.merged {starts = [0, 0, 16], sizes = [2, 4, 8]
// CHECK-NOT: logical.add
func.func @biased(
    %x : tensor<2x4x8xbf16> {logical.name = "x", logical.role = "input"},
    %wq : tensor<8x16xf32> {logical.name = "wq", logical.role = "param"},
    %bq : tensor<16xbf16> {logical.name = "bq", logical.role = "param"},
    %wk : tensor<8x8xf32> {logical.name = "wk", logical.role = "param"},
    %bk : tensor<8xbf16> {logical.name = "bk", logical.role = "param"})
    -> (tensor<2x4x2x8xbf16> {logical.name = "heads"}, tensor<2x4x1x8xbf16> {logical.name = "keys"}) {
  %wq.half = logical.cast %wq : tensor<8x16xf32> -> tensor<8x16xbf16>
  %biased.q = logical.matmul %x, %wq.half : (tensor<2x4x8xbf16>, tensor<8x16xbf16>) -> tensor<2x4x16xbf16>
  %rows.q = logical.broadcast %bq {dimensions = [2]} : tensor<16xbf16> -> tensor<2x4x16xbf16>
  %biased.q.sum = logical.add %biased.q, %rows.q : tensor<2x4x16xbf16>
  %heads = logical.reshape %biased.q.sum : tensor<2x4x16xbf16> -> tensor<2x4x2x8xbf16>
  %wk.half = logical.cast %wk : tensor<8x8xf32> -> tensor<8x8xbf16>
  %biased.k = logical.matmul %x, %wk.half : (tensor<2x4x8xbf16>, tensor<8x8xbf16>) -> tensor<2x4x8xbf16>
  %rows.k = logical.broadcast %bk {dimensions = [2]} : tensor<8xbf16> -> tensor<2x4x8xbf16>
  %biased.k.sum = logical.add %rows.k, %biased.k : tensor<2x4x8xbf16>
  %keys = logical.reshape %biased.k.sum : tensor<2x4x8xbf16> -> tensor<2x4x1x8xbf16>
  func.return %heads, %keys : tensor<2x4x2x8xbf16>, tensor<2x4x1x8xbf16>
}

// Packed weights of one scheme are side by side whatever their widths, where the target has no kernel of several of them.
// CHECK-LABEL: func.func @packed
// CHECK-NEXT: %packed.gate.weights = logical.concat %gate, %up {axis = 0
// CHECK-NEXT: %packed.gate.merged = logical.matmul_blocks %x, %packed.gate.weights {scheme = "Q4_0"
// CHECK-NOT: logical.matmul_blocks
// FUSES-LABEL: func.func @packed
// FUSES-NOT: logical.concat
func.func @packed(
    %x : tensor<1x32xf32> {logical.name = "x", logical.role = "input"},
    %gate : tensor<8x18xui8> {logical.name = "gate", logical.role = "param"},
    %up : tensor<8x18xui8> {logical.name = "up", logical.role = "param"})
    -> (tensor<1x8xf32> {logical.name = "y"}) {
  %packed.gate = logical.matmul_blocks %x, %gate {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<8x18xui8>) -> tensor<1x8xf32>
  %packed.up = logical.matmul_blocks %x, %up {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<8x18xui8>) -> tensor<1x8xf32>
  %y = logical.mul %packed.gate, %packed.up : tensor<1x8xf32>
  func.return %y : tensor<1x8xf32>
}

// Of a parallel block only queries, keys and values are one product, where the target fuses a gate with what it gates,
// and an activation with the product that it alone reads.
// FUSES-LABEL: func.func @block
// FUSES: %block.q.merged = logical.matmul_blocks %x, %block.q.weights {scheme = "Q4_0"
// FUSES-COUNT-3: logical.matmul_blocks %x
// FUSES-NOT: logical.matmul_blocks
// CHECK-LABEL: func.func @block
// CHECK: %block.q.merged = logical.matmul_blocks %x, %block.q.weights {scheme = "Q4_0"
// CHECK-NOT: logical.matmul_blocks
func.func @block(
    %x : tensor<1x32xf32> {logical.name = "x", logical.role = "input"},
    %wq : tensor<16x18xui8> {logical.name = "wq", logical.role = "param"},
    %wk : tensor<8x18xui8> {logical.name = "wk", logical.role = "param"},
    %gate : tensor<24x18xui8> {logical.name = "gate", logical.role = "param"},
    %up : tensor<24x18xui8> {logical.name = "up", logical.role = "param"})
    -> (tensor<1x2x8xf32> {logical.name = "heads"}, tensor<1x1x8xf32> {logical.name = "keys"}, tensor<1x1x8xf32> {logical.name = "values"}, tensor<1x24xf32> {logical.name = "y"}, tensor<1x24xf32> {logical.name = "z"}) {
  %block.q = logical.matmul_blocks %x, %wq {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<16x18xui8>) -> tensor<1x16xf32>
  %heads = logical.reshape %block.q : tensor<1x16xf32> -> tensor<1x2x8xf32>
  %block.k = logical.matmul_blocks %x, %wk {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<8x18xui8>) -> tensor<1x8xf32>
  %keys = logical.reshape %block.k : tensor<1x8xf32> -> tensor<1x1x8xf32>
  %block.v = logical.matmul_blocks %x, %wk {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<8x18xui8>) -> tensor<1x8xf32>
  %values = logical.reshape %block.v : tensor<1x8xf32> -> tensor<1x1x8xf32>
  %block.gate = logical.matmul_blocks %x, %gate {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<24x18xui8>) -> tensor<1x24xf32>
  %block.silu = logical.silu %block.gate : tensor<1x24xf32>
  %block.up = logical.matmul_blocks %x, %up {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<24x18xui8>) -> tensor<1x24xf32>
  %y = logical.mul %block.silu, %block.up : tensor<1x24xf32>
  %block.up2 = logical.matmul_blocks %x, %up {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<24x18xui8>) -> tensor<1x24xf32>
  %block.active = logical.gelu %block.up2 : tensor<1x24xf32>
  func.return %heads, %keys, %values, %y, %block.active : tensor<1x2x8xf32>, tensor<1x1x8xf32>, tensor<1x1x8xf32>, tensor<1x24xf32>, tensor<1x24xf32>
}

// Products of rounded activations are one, a gate with what it gates as well: no kernel fuses these.
// FUSES-LABEL: func.func @rounded
// FUSES: logical.rounded_matmul_blocks %x, %rounded.gate.weights {scheme = "Q4_0"
// FUSES-NOT: logical.rounded_matmul_blocks
func.func @rounded(
    %x : tensor<1x32xf32> {logical.name = "x", logical.role = "input"},
    %gate : tensor<8x18xui8> {logical.name = "gate", logical.role = "param"},
    %up : tensor<8x18xui8> {logical.name = "up", logical.role = "param"})
    -> (tensor<1x8xf32> {logical.name = "y"}) {
  %rounded.gate = logical.rounded_matmul_blocks %x, %gate {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<8x18xui8>) -> tensor<1x8xf32>
  %rounded.up = logical.rounded_matmul_blocks %x, %up {scheme = "Q4_0"} : (tensor<1x32xf32>, tensor<8x18xui8>) -> tensor<1x8xf32>
  %y = logical.mul %rounded.gate, %rounded.up : tensor<1x8xf32>
  func.return %y : tensor<1x8xf32>
}

// What has no role is no parameter, and products of sizes by name are left as they are.
// CHECK-LABEL: func.func @unknown
// CHECK-NOT: logical.concat
func.func @unknown(
    %x : tensor<?x8xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"},
    %a : tensor<8x16xf32> {logical.name = "a"},
    %b : tensor<8x8xf32> {logical.name = "b", logical.role = "param"},
    %c : tensor<8x4xf32> {logical.name = "c", logical.role = "param"})
    -> (tensor<?x16xf32, #logical.dims<["N", ""]>> {logical.name = "ya"}, tensor<?x8xf32, #logical.dims<["N", ""]>> {logical.name = "yb"}, tensor<?x4xf32, #logical.dims<["N", ""]>> {logical.name = "yc"}) {
  %unknown.a = logical.matmul %x, %a : (tensor<?x8xf32, #logical.dims<["N", ""]>>, tensor<8x16xf32>) -> tensor<?x16xf32, #logical.dims<["N", ""]>>
  %unknown.b = logical.matmul %x, %b : (tensor<?x8xf32, #logical.dims<["N", ""]>>, tensor<8x8xf32>) -> tensor<?x8xf32, #logical.dims<["N", ""]>>
  %yb = logical.neg %unknown.b : tensor<?x8xf32, #logical.dims<["N", ""]>>
  %unknown.c = logical.matmul %x, %c : (tensor<?x8xf32, #logical.dims<["N", ""]>>, tensor<8x4xf32>) -> tensor<?x4xf32, #logical.dims<["N", ""]>>
  %yc = logical.neg %unknown.c : tensor<?x4xf32, #logical.dims<["N", ""]>>
  func.return %unknown.a, %yb, %yc : tensor<?x16xf32, #logical.dims<["N", ""]>>, tensor<?x8xf32, #logical.dims<["N", ""]>>, tensor<?x4xf32, #logical.dims<["N", ""]>>
}

// Each of these stays apart for a reason of its own; products of equal widths are for kernels of several weights.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-8: logical.matmul
// CHECK-NOT: logical.concat
func.func @apart(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %h : tensor<4x8xf32> {logical.name = "h", logical.role = "input"},
    %w16 : tensor<8x16xf32> {logical.name = "w16", logical.role = "param"},
    %w8 : tensor<8x8xf32> {logical.name = "w8", logical.role = "param"},
    %w3 : tensor<8x3xf32> {logical.name = "w3", logical.role = "param"},
    %w4t : tensor<4x8xf32> {logical.name = "w4t", logical.role = "param"})
    -> (tensor<4x16xf32> {logical.name = "a"}, tensor<4x8xf32> {logical.name = "b"}, tensor<2x2x3xf32> {logical.name = "c"}, tensor<2x32xf32> {logical.name = "d"}, tensor<8x2xf32> {logical.name = "e"}, tensor<8x8xf32> {logical.name = "f"}, tensor<4x2x4xf32> {logical.name = "g"}) {
  %plain = logical.matmul %x, %w16 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %active = logical.relu %plain : tensor<4x16xf32>
  %returned = logical.matmul %x, %w8 : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %narrow = logical.matmul %x, %w3 : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %c = logical.reshape %narrow : tensor<4x3xf32> -> tensor<2x2x3xf32>
  %one = logical.matmul %x, %w16 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %d = logical.reshape %one : tensor<4x16xf32> -> tensor<2x32xf32>
  %other = logical.matmul %x, %w4t {transpose_b} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  %e = logical.reshape %other : tensor<4x4xf32> -> tensor<8x2xf32>
  %first = logical.matmul %h, %w16 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %folded = logical.reshape %first : tensor<4x16xf32> -> tensor<8x8xf32>
  %between = logical.matmul %folded, %w8 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %later = logical.matmul %h, %w8 : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %g = logical.reshape %later : tensor<4x8xf32> -> tensor<4x2x4xf32>
  func.return %active, %returned, %c, %d, %e, %between, %g : tensor<4x16xf32>, tensor<4x8xf32>, tensor<2x2x3xf32>, tensor<2x32xf32>, tensor<8x2xf32>, tensor<8x8xf32>, tensor<4x2x4xf32>
}
