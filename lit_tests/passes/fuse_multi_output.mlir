// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,fuse-multi-output' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"fusion\": {\"multi_output\": false}}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"fusion\": {\"elementwise\": false}}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"determinism\": \"batch_invariant\"}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=BATCH
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"sum\"], [\"gradient\", \"bias\"]], \"kernels\": {\"wide.neg\": \"cpu.generated\"}}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=PINNED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"both\", \"loss.part\"], [\"loss.whole\"], [\"root.sum\", \"root.sqrt\", \"root.flat\"], [\"low.exp\", \"wide.sum\", \"wide.sqrt\", \"wide.flat\", \"low.both\"]], \"kernels\": {\"loss\": \"cpu.generated\"}}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=NAMED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"twin.second\"], [\"twin.first\"]]}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=LISTED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,fuse-multi-output,select-kernels,generate-kernels,lower-to-emit,schedule,decide-inplace' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "fuse-multi-output" ["sum", "square", "total", "root", "norm"] choice "one kernel for 5 ops, 2 results" because "what is kept of earlier ops is in registers when later ops read it" cost {saved_bytes = 512 : i64, unfused_us = {{.*}}, fused_us = {{.*}}}
// CHECK: emit.decision "fuse-multi-output" ["wide.exp", "wide.neg"] choice "one kernel for 2 ops, 2 results" because "what several ops read is read once" cost {saved_bytes = 512 : i64, unfused_us = {{.*}}, fused_us = {{.*}}}
// CHECK: emit.decision "fuse-multi-output" ["max", "shifted", "exp", "all", "quotient"] choice "one kernel for 5 ops, 3 results"
// CHECK: emit.decision "fuse-multi-output" ["first"] choice "not fused" because "no other instruction can be fused with it" rejected {last = "it also reads 'product', which reads the first: fused, they would wait for '{{.*}}', and it for them"}
// CHECK: emit.decision "fuse-multi-output" ["f0", "f1", "f2", "f3"] choice "one kernel for 4 ops, 4 results" {{.*}} rejected {f4 = "fused, they have 5 results with other consumers, more than 4; {{.*}}"}
// CHECK: emit.decision "fuse-multi-output" ["across"] choice "not fused" {{.*}} rejected {down = "cpu.generated: sums of columns beside sums of rows have no code on cpu"}
// CHECK: emit.decision "fuse-multi-output" ["gradient"] choice "not fused" {{.*}} rejected {bias = "predicted {{.*}} us fused and {{.*}} us unfused; {{.*}}"}
// CHECK: emit.decision "fuse-multi-output" ["near"] choice "not fused" {{.*}} rejected {late = "its results would be kept in memory while 'far.product' runs, 512 bytes more; {{.*}}"}
// OFF: emit.decision "fuse-multi-output" ["sum"{{.*}}] choice "not fused" {{.*}} = "fusion into several results is off by policy (fusion: elementwise, multi_output, epilogue)"
// OFF-NOT: {{one kernel for [0-9]+ ops, }}
// BATCH: emit.decision "fuse-multi-output" ["sum"] choice "not fused" {{.*}} = "results may not depend on the batch (determinism), and whether this fusion pays does; {{.*}}"
// BATCH-NOT: {{one kernel for [0-9]+ ops, }}
// EMIT: emit.decision "decide-inplace" ["error.neg"] choice "result 0 overwrites operand 0"
// PINNED: emit.decision "fuse-multi-output" ["sum"] choice "not fused" {{.*}} = "the policy's groups keep them in different instructions"
// PINNED: emit.decision "fuse-multi-output" ["wide.exp"] choice "not fused" {{.*}} rejected {wide.neg = "the policy gives a kernel or record to 'wide.neg', which would be no instruction of its own: drop that entry"}

// A sum that is kept for the next residual, and the norm of it: one kernel that writes both. The scale is no result.
// CHECK-LABEL: func.func @residual
// CHECK-NEXT: %sum, %norm = emit.group "sum" from ["sum", "norm"] ins(%x_1 = %x : tensor<4x32xf32>, %r_1 = %r : tensor<4x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
// CHECK-NEXT:   logical.add %x_1, %r_1
// CHECK: emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %sum, %norm
// OFF-LABEL: func.func @residual
// OFF: emit.group "sum" from ["sum"]
// PINNED-LABEL: func.func @residual
// PINNED: emit.group "sum" from ["sum"]
// PINNED: emit.group "norm" from ["norm"]

// The sum is computed again where it is stored, from elements that are there.
// EMIT: emit.kernel @sum.code parallel [4] reduce [32]
// EMIT: emit.reduce "sum"
// EMIT: emit.phase {
// EMIT-NEXT: %[[SUM:.*]] = arith.addf %x, %r : f32
// EMIT-NEXT: emit.store %[[SUM]], 0 : f32
// EMIT: emit.store %{{.*}}, 1 : f32
func.func @residual(
    %x : tensor<4x32xf32> {logical.name = "x", logical.role = "input"},
    %r : tensor<4x32xf32> {logical.name = "r", logical.role = "input"})
    -> (tensor<4x32xf32> {logical.name = "sum"}, tensor<4x32xf32> {logical.name = "norm"}) {
  %sum = logical.add %x, %r {aicf.id = "sum", aicf.src = ["sum"]} : tensor<4x32xf32>
  %q = logical.mul %sum, %sum {aicf.id = "square", aicf.src = ["norm"]} : tensor<4x32xf32>
  %s = logical.reduce_sum %q {axes = [1], keepdims, aicf.id = "total", aicf.src = ["norm"]} : tensor<4x32xf32> -> tensor<4x1xf32>
  %i = logical.rsqrt %s {aicf.id = "root", aicf.src = ["norm"]} : tensor<4x1xf32>
  %ib = logical.broadcast %i {dimensions = [0, 1], aicf.id = "spread", aicf.src = ["norm"]} : tensor<4x1xf32> -> tensor<4x32xf32>
  %norm = logical.mul %sum, %ib {aicf.id = "norm", aicf.src = ["norm"]} : tensor<4x32xf32>
  func.return %sum, %norm : tensor<4x32xf32>, tensor<4x32xf32>
}

// Two that read one value, neither of which reads the other. What reads the earlier one moves after both.
// CHECK-LABEL: func.func @siblings
// CHECK-NEXT: %e, %n = emit.group "wide.exp" from ["wide.exp", "wide.neg"] ins(%x_1 = %x : tensor<8x16xf32>)
// CHECK: %p = emit.group "wide.product"
// PINNED-LABEL: func.func @siblings
// PINNED: emit.group "wide.neg" from ["wide.neg"]
func.func @siblings(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<16x16xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<8x16xf32> {logical.name = "p"}, tensor<8x16xf32> {logical.name = "n"}) {
  %e = logical.exp %x {aicf.id = "wide.exp", aicf.src = ["wide.exp"]} : tensor<8x16xf32>
  %p = logical.matmul %e, %w {aicf.id = "wide.product", aicf.src = ["wide.product"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %n = logical.neg %x {aicf.id = "wide.neg", aicf.src = ["wide.neg"]} : tensor<8x16xf32>
  func.return %p, %n : tensor<8x16xf32>, tensor<8x16xf32>
}

// Results of the whole space and of one element a row; what would not fit one result joins group by group.
// CHECK-LABEL: func.func @rows
// CHECK-NEXT: %m, %u, %q = emit.group "max" from ["max", "shifted", "exp", "all", "quotient"] ins(%x_1 = %x : tensor<4x32xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4x32xf32>)
// CUDA-LABEL: func.func @rows
// CUDA-NEXT: %m, %u, %q = emit.group "max" from ["max", "shifted", "exp", "all", "quotient"]
// EMIT: emit.kernel @max.code {{.*}} outs [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]
func.func @rows(%x : tensor<4x32xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<4x32xf32> {logical.name = "y"}, tensor<4xf32> {logical.name = "largest"}, tensor<4xf32> {logical.name = "all"}) {
  %m = logical.reduce_max %x {axes = [1], aicf.id = "max", aicf.src = ["max"]} : tensor<4x32xf32> -> tensor<4xf32>
  %mb = logical.broadcast %m {dimensions = [0], aicf.id = "max.b", aicf.src = ["max"]} : tensor<4xf32> -> tensor<4x32xf32>
  %s = logical.sub %x, %mb {aicf.id = "shifted", aicf.src = ["shifted"]} : tensor<4x32xf32>
  %e = logical.exp %s {aicf.id = "exp", aicf.src = ["exp"]} : tensor<4x32xf32>
  %u = logical.reduce_sum %e {axes = [1], aicf.id = "all", aicf.src = ["all"]} : tensor<4x32xf32> -> tensor<4xf32>
  %ub = logical.broadcast %u {dimensions = [0], aicf.id = "all.b", aicf.src = ["all"]} : tensor<4xf32> -> tensor<4x32xf32>
  %q = logical.div %e, %ub {aicf.id = "quotient", aicf.src = ["quotient"]} : tensor<4x32xf32>
  func.return %q, %m, %u : tensor<4x32xf32>, tensor<4xf32>, tensor<4xf32>
}

// The product needs the first and the last needs the product: one group of first and last would wait for itself.
// CHECK-LABEL: func.func @cycle
// CHECK: emit.group "first"
// CHECK: emit.group "product"
// CHECK: emit.group "last"
func.func @cycle(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<16x16xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<8x16xf32> {logical.name = "y"}, tensor<8x16xf32> {logical.name = "e"}) {
  %e = logical.exp %x {aicf.id = "first", aicf.src = ["first"]} : tensor<8x16xf32>
  %p = logical.matmul %e, %w {aicf.id = "product", aicf.src = ["product"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %y = logical.add %x, %p {aicf.id = "last", aicf.src = ["last"]} : tensor<8x16xf32>
  func.return %y, %e : tensor<8x16xf32>, tensor<8x16xf32>
}

// CHECK-LABEL: func.func @many
// CHECK: %0, %1, %2, %3 = emit.group "f0"
// CHECK: %4 = emit.group "f4"
func.func @many(%x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<8x16xf32> {logical.name = "y0"}, tensor<8x16xf32> {logical.name = "y1"}, tensor<8x16xf32> {logical.name = "y2"},
        tensor<8x16xf32> {logical.name = "y3"}, tensor<8x16xf32> {logical.name = "y4"}) {
  %0 = logical.exp %x {aicf.id = "f0", aicf.src = ["f0"]} : tensor<8x16xf32>
  %1 = logical.tanh %x {aicf.id = "f1", aicf.src = ["f1"]} : tensor<8x16xf32>
  %2 = logical.neg %x {aicf.id = "f2", aicf.src = ["f2"]} : tensor<8x16xf32>
  %3 = logical.abs %x {aicf.id = "f3", aicf.src = ["f3"]} : tensor<8x16xf32>
  %4 = logical.erf %x {aicf.id = "f4", aicf.src = ["f4"]} : tensor<8x16xf32>
  func.return %0, %1, %2, %3, %4 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// CHECK-LABEL: func.func @axes
// CHECK: emit.group "across"
// CHECK: emit.group "down"
func.func @axes(%x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<8xf32> {logical.name = "a"}, tensor<16xf32> {logical.name = "d"}) {
  %a = logical.reduce_sum %x {axes = [1], aicf.id = "across", aicf.src = ["across"]} : tensor<8x16xf32> -> tensor<8xf32>
  %d = logical.reduce_max %x {axes = [0], aicf.id = "down", aicf.src = ["down"]} : tensor<8x16xf32> -> tensor<16xf32>
  func.return %a, %d : tensor<8xf32>, tensor<16xf32>
}

// Neighbouring columns of one row after the other are a slow way to write much; a policy that wants it gets it.
// CHECK-LABEL: func.func @columns
// CHECK: emit.group "bias"
// PINNED-LABEL: func.func @columns
// PINNED-NEXT: emit.group "gradient" from ["gradient", "bias"]
func.func @columns(
    %x : tensor<64x256xf32> {logical.name = "x", logical.role = "input"},
    %u : tensor<64x256xf32> {logical.name = "u", logical.role = "input"}) -> (tensor<64x256xf32> {logical.name = "dx"}, tensor<256xf32> {logical.name = "db"}) {
  %g = logical.mul %x, %u {aicf.id = "gradient", aicf.src = ["gradient"]} : tensor<64x256xf32>
  %b = logical.reduce_sum %g {axes = [0], aicf.id = "bias", aicf.src = ["bias"]} : tensor<64x256xf32> -> tensor<256xf32>
  func.return %g, %b : tensor<64x256xf32>, tensor<256xf32>
}

// A result may take the bytes of an input also if it is written in an earlier phase, as long as none reads those later.
// EMIT: emit.kernel @error.neg.code
// EMIT: emit.reduce "sum"
// EMIT: emit.store %{{.*}}, 0 : f32
// EMIT: emit.phase
// EMIT: emit.store %{{.*}}, 1 : f32
func.func @overwritten(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<16x16xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<8x16xf32> {logical.name = "y"}, tensor<8xf32> {logical.name = "l"}) {
  %p = logical.matmul %x, %w {aicf.id = "error", aicf.src = ["error"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %q = logical.mul %p, %p {aicf.id = "error.square", aicf.src = ["error.square"]} : tensor<8x16xf32>
  %l = logical.reduce_sum %q {axes = [1], aicf.id = "loss", aicf.src = ["loss"]} : tensor<8x16xf32> -> tensor<8xf32>
  %g = logical.neg %p {aicf.id = "error.neg", aicf.src = ["error.neg"]} : tensor<8x16xf32>
  %y = logical.matmul %g, %w {aicf.id = "back", aicf.src = ["back"]} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  func.return %y, %l : tensor<8x16xf32>, tensor<8xf32>
}

// Two that read one value, where the later runs long after: what it gives would take memory while a product runs.
// CHECK-LABEL: func.func @far
// CHECK: emit.group "near" from ["near"]
// CHECK: emit.group "late" from ["late"]
func.func @far(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<16x8xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<8x8xf32> {logical.name = "y"}) {
  %e = logical.exp %x {aicf.id = "near", aicf.src = ["near"]} : tensor<8x16xf32>
  %p = logical.matmul %e, %w {aicf.id = "far.product", aicf.src = ["far.product"]} : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %n = logical.neg %x {aicf.id = "late", aicf.src = ["late"]} : tensor<8x16xf32>
  %y = logical.matmul %p, %n {aicf.id = "last.product", aicf.src = ["last.product"]} : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %z = logical.matmul %y, %w {aicf.id = "end.product", aicf.src = ["end.product"]} : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  func.return %z : tensor<8x8xf32>
}

// The product between may be one of a packed weight.
// CHECK-LABEL: func.func @far_packed
// CHECK: emit.group "near.packed" from ["near.packed"]
// CHECK: emit.group "late.packed" from ["late.packed"]
func.func @far_packed(
    %x : tensor<8x32xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x18xui8> {logical.name = "w", logical.role = "param"})
    -> (tensor<8x8xf32> {logical.name = "y"}) {
  %e = logical.exp %x {aicf.id = "near.packed", aicf.src = ["near.packed"]} : tensor<8x32xf32>
  %p = logical.matmul_blocks %e, %w {scheme = "Q4_0", aicf.id = "packed.product", aicf.src = ["packed.product"]} : (tensor<8x32xf32>, tensor<8x18xui8>) -> tensor<8x8xf32>
  %n = logical.neg %x {aicf.id = "late.packed", aicf.src = ["late.packed"]} : tensor<8x32xf32>
  %y = logical.matmul %p, %n {aicf.id = "packed.last", aicf.src = ["packed.last"]} : (tensor<8x8xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %z = logical.matmul_blocks %y, %w {scheme = "Q4_0", aicf.id = "packed.end", aicf.src = ["packed.end"]} : (tensor<8x32xf32>, tensor<8x18xui8>) -> tensor<8x8xf32>
  func.return %z : tensor<8x8xf32>
}

// A part of a group that the policy lists is not called by its source: 'loss' is the other group's name.
// NAMED-LABEL: func.func @named
// NAMED: emit.group "both" from ["both", "loss"]
// NAMED: emit.group "loss" from ["loss"]
func.func @named(
    %a : tensor<8x16xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<8x16xf32> {logical.name = "b", logical.role = "input"})
    -> (tensor<8x16xf32> {logical.name = "p"}, tensor<8x16xf32> {logical.name = "q"}, tensor<8x16xf32> {logical.name = "r"}) {
  %p = logical.exp %a {aicf.id = "both", aicf.src = ["both"]} : tensor<8x16xf32>
  %q = logical.neg %p {aicf.id = "loss.part", aicf.src = ["loss"]} : tensor<8x16xf32>
  %r = logical.exp %b {aicf.id = "loss.whole", aicf.src = ["loss"]} : tensor<8x16xf32>
  func.return %p, %q, %r : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// A view of a result stays an op of the group with its id, so that a policy can list it; one between ops has none.
// CHECK-LABEL: func.func @viewed
// CHECK: logical.broadcast %s {dimensions = [0, 1]} : tensor<8x1xf32>
// CHECK: %q_1 = logical.reshape %c {aicf.id = "view.flat", aicf.src = ["view"]} : tensor<8x16xf32> -> tensor<8x1x16xf32>
// CHECK-NEXT: emit.yield %p_1, %q_1
func.func @viewed(%a : tensor<8x16xf32> {logical.name = "a", logical.role = "input"})
    -> (tensor<8x16xf32> {logical.name = "p"}, tensor<8x1x16xf32> {logical.name = "q"}) {
  %p = logical.exp %a {aicf.id = "view.exp", aicf.src = ["view"]} : tensor<8x16xf32>
  %s = logical.reduce_sum %p {axes = [1], keepdims, aicf.id = "view.sum", aicf.src = ["view"]} : tensor<8x16xf32> -> tensor<8x1xf32>
  %w = logical.broadcast %s {dimensions = [0, 1], aicf.id = "view.wide", aicf.src = ["view"]} : tensor<8x1xf32> -> tensor<8x16xf32>
  %c = logical.div %p, %w {aicf.id = "view.div", aicf.src = ["view"]} : tensor<8x16xf32>
  %q = logical.reshape %c {aicf.id = "view.flat", aicf.src = ["view"]} : tensor<8x16xf32> -> tensor<8x1x16xf32>
  func.return %p, %q : tensor<8x16xf32>, tensor<8x1x16xf32>
}

// A reshape joins a part of its listed group also where the reduction is in another part.
// NAMED-LABEL: func.func @parts
// NAMED: emit.group "root" from ["root"]
// NAMED: logical.reshape {{.*}}aicf.id = "root.flat"
// NAMED: emit.yield
// NAMED-NEXT: }
// NAMED-NEXT: func.return
// CHECK-LABEL: func.func @parts
// CHECK: emit.group "root.sqrt" from ["root"]
// CHECK: emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: logical.reshape {{.*}}aicf.id = "root.flat"
func.func @parts(%a : tensor<8x16xf32> {logical.name = "a", logical.role = "input"})
    -> (tensor<8x1xf32> {logical.name = "p"}, tensor<8xf32> {logical.name = "q"}) {
  %s = logical.reduce_sum %a {axes = [1], keepdims, aicf.id = "root.sum", aicf.src = ["root"]} : tensor<8x16xf32> -> tensor<8x1xf32>
  %r = logical.sqrt %s {aicf.id = "root.sqrt", aicf.src = ["root"]} : tensor<8x1xf32>
  %q = logical.reshape %r {aicf.id = "root.flat", aicf.src = ["root"]} : tensor<8x1xf32> -> tensor<8xf32>
  func.return %s, %q : tensor<8x1xf32>, tensor<8xf32>
}

// A number and what is computed of it element by element share an instruction only if the elements need no coordinates:
// the parts of an update are rows of memory.
// CUDA-LABEL: func.func @numbered
// CUDA: %n, %p = emit.group "row" from
// CUDA-LABEL: func.func @placed
// CUDA: %n = emit.group "plane" from
// CUDA: %p = emit.group "plane.place" from
func.func @numbered(
    %a : tensor<24xi64> {logical.name = "a", logical.role = "input"},
    %step : tensor<i64> {logical.name = "step", logical.role = "input"})
    -> (tensor<i64> {logical.name = "n"}, tensor<24xi64> {logical.name = "p"}) {
  %n = logical.neg %step {aicf.id = "row.next", aicf.src = ["row"]} : tensor<i64>
  %s = logical.broadcast %n {dimensions = [], aicf.id = "row.spread", aicf.src = ["row"]} : tensor<i64> -> tensor<24xi64>
  %p = logical.add %a, %s {aicf.id = "row.sum", aicf.src = ["row"]} : tensor<24xi64>
  func.return %n, %p : tensor<i64>, tensor<24xi64>
}

func.func @placed(
    %a : tensor<4x6xi64> {logical.name = "a", logical.role = "input"},
    %step : tensor<i64> {logical.name = "step", logical.role = "input"})
    -> (tensor<i64> {logical.name = "n"}, tensor<4x6xi64> {logical.name = "p"}) {
  %n = logical.neg %step {aicf.id = "plane.next", aicf.src = ["plane"]} : tensor<i64>
  %s = logical.broadcast %n {dimensions = [], aicf.id = "plane.spread", aicf.src = ["plane"]} : tensor<i64> -> tensor<4x6xi64>
  %c = logical.iota {axis = 1, aicf.id = "plane.column", aicf.src = ["plane"]} : tensor<4x6xi64>
  %q = logical.mul %c, %s {aicf.id = "plane.place", aicf.src = ["plane"]} : tensor<4x6xi64>
  %p = logical.add %a, %q {aicf.id = "plane.sum", aicf.src = ["plane"]} : tensor<4x6xi64>
  func.return %n, %p : tensor<i64>, tensor<4x6xi64>
}

// A listed reshape that others read is a result: what reads it within the list gets no copy of it.
// NAMED-LABEL: func.func @copied
// NAMED: %{{.*}}, %{{.*}} = emit.group "low" from ["low", "wide"] {{.*}} -> (tensor<8xf32>, tensor<8xf32>) {
// NAMED: logical.reshape {{.*}}aicf.id = "wide.flat"
// NAMED: emit.yield
// NAMED-NEXT: }
// NAMED-NEXT: func.return
func.func @copied(
    %a : tensor<8x16xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<8xf32> {logical.name = "b", logical.role = "input"})
    -> (tensor<8xf32> {logical.name = "p"}, tensor<8xf32> {logical.name = "q"}) {
  %e = logical.exp %b {aicf.id = "low.exp", aicf.src = ["low"]} : tensor<8xf32>
  %s = logical.reduce_sum %a {axes = [1], keepdims, aicf.id = "wide.sum", aicf.src = ["wide"]} : tensor<8x16xf32> -> tensor<8x1xf32>
  %r = logical.sqrt %s {aicf.id = "wide.sqrt", aicf.src = ["wide"]} : tensor<8x1xf32>
  %p = logical.reshape %r {aicf.id = "wide.flat", aicf.src = ["wide"]} : tensor<8x1xf32> -> tensor<8xf32>
  %q = logical.add %e, %p {aicf.id = "low.both", aicf.src = ["low"]} : tensor<8xf32>
  func.return %p, %q : tensor<8xf32>, tensor<8xf32>
}

// Of two listed groups of one source the first in the list has its name, wherever it stands, if no kernels say names.
// LISTED-LABEL: func.func @twins
// LISTED: emit.group "twin.first" from ["twin"]
// LISTED: emit.group "twin" from ["twin"]
// CHECK-LABEL: func.func @twins
// CHECK: emit.group "twin" from ["twin"]
// CHECK: emit.group "twin.second" from ["twin"]
func.func @twins(
    %a : tensor<8xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "input"})
    -> (tensor<8xf32> {logical.name = "p"}, tensor<4xf32> {logical.name = "q"}) {
  %p = logical.exp %a {aicf.id = "twin.first", aicf.src = ["twin"]} : tensor<8xf32>
  %q = logical.exp %b {aicf.id = "twin.second", aicf.src = ["twin"]} : tensor<4xf32>
  func.return %p, %q : tensor<8xf32>, tensor<4xf32>
}

// The first group of a source joined another one, whose name the whole has: the second has the source's name then.
// CHECK: func.func @freed
// CHECK: emit.group "above" from ["above", "shared"]
// CHECK: emit.group "shared" from ["shared"]
func.func @freed(
    %a : tensor<8x16xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "input"})
    -> (tensor<8x16xf32> {logical.name = "p"}, tensor<8x16xf32> {logical.name = "q"}, tensor<4xf32> {logical.name = "r"}) {
  %p = logical.exp %a {aicf.id = "above", aicf.src = ["above"]} : tensor<8x16xf32>
  %q = logical.neg %a {aicf.id = "shared.first", aicf.src = ["shared"]} : tensor<8x16xf32>
  %r = logical.exp %b {aicf.id = "shared.second", aicf.src = ["shared"]} : tensor<4xf32>
  func.return %p, %q, %r : tensor<8x16xf32>, tensor<8x16xf32>, tensor<4xf32>
}
