// RUN: aicf-opt %s --split-input-file -p 'set-target{target="reference"},fuse-updates' | filecheck %s
// RUN: aicf-opt %s --split-input-file -p 'set-target{target="cpu:x86-64-v3"},fuse-updates' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s --split-input-file -p 'set-target{target="reference"},fuse-updates{listed=true}' | filecheck %s --check-prefix=LISTED

// Chains over tensors of different shapes are one group; what is one number for all is computed in it, the counter too.
// On cpu threads do not wait inside of an instruction: there the number is an operand.
// CHECK: emit.decision "fuse-updates" ["w.new", "now", "rate", "w.spread", "w.change", "b.spread", "b.change", "b.new"]
// CHECK-SAME: choice "one instruction updates 2 tensors, 3 results"
// CHECK-SAME: cost {parts = 2 : i64, bytes = 352 : i64}
// CHECK-LABEL: func.func @shapes
// CHECK: %w.new, %b.new, %now = emit.group "w.new" from ["now", "rate", "w.new", "b.new"]
// CHECK-SAME: ins(%step_1 = %step : tensor<i64>, %w.grad_1 = %w.grad : tensor<4x6xf32>,
// CHECK: logical.add %step_1
// CHECK: func.return %w.new, %b.new, %now
// CPU: rejected {"numbers computed inside" = "{{.*}}cpu.multi_tensor: numbers for all parts are instructions of their own on cpu: threads do not wait inside of one"}
// CPU-LABEL: func.func @shapes
// CPU: %now = logical.add
// CPU: %rate = logical.cast
// CPU: emit.group "w.new" from ["w.new", "b.new"] ins(%rate_1 = %rate
// LISTED-NOT: emit.group
func.func @shapes(
    %w : tensor<4x6xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<4xf32> {logical.name = "b", logical.role = "param"},
    %w.grad : tensor<4x6xf32> {logical.name = "w.grad", logical.role = "input"},
    %b.grad : tensor<4xf32> {logical.name = "b.grad", logical.role = "input"},
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<4x6xf32> {logical.updates = "w"}, tensor<4xf32> {logical.updates = "b"}, tensor<i64> {logical.updates = "step"}) {
  %one = logical.constant dense<1> {aicf.id = "one", aicf.src = ["now"]} : tensor<i64>
  %now = logical.add %step, %one {aicf.id = "now", aicf.src = ["now"]} : tensor<i64>
  %rate = logical.cast %now {aicf.id = "rate", aicf.src = ["rate"]} : tensor<i64> -> tensor<f32>
  %w.spread = logical.broadcast %rate {dimensions = [], aicf.id = "w.spread", aicf.src = ["w.new"]} : tensor<f32> -> tensor<4x6xf32>
  %w.change = logical.mul %w.spread, %w.grad {aicf.id = "w.change", aicf.src = ["w.new"]} : tensor<4x6xf32>
  %w.new = logical.sub %w, %w.change {aicf.id = "w.new", aicf.src = ["w.new"]} : tensor<4x6xf32>
  %b.spread = logical.broadcast %rate {dimensions = [], aicf.id = "b.spread", aicf.src = ["b.new"]} : tensor<f32> -> tensor<4xf32>
  %b.change = logical.mul %b.spread, %b.grad {aicf.id = "b.change", aicf.src = ["b.new"]} : tensor<4xf32>
  %b.new = logical.sub %b, %b.change {aicf.id = "b.new", aicf.src = ["b.new"]} : tensor<4xf32>
  func.return %w.new, %b.new, %now : tensor<4x6xf32>, tensor<4xf32>, tensor<i64>
}

// -----

// The cast of a gradient joins its chain; the sum of two gradients does not, nor what another op reads as well.
// CHECK-LABEL: func.func @gradients
// CHECK: %sum = logical.add %c.grad, %d.grad
// CHECK: %half = logical.mul %sum, %sum
// CHECK: %other = logical.neg %half
// CHECK: emit.group "a.wide" from ["a.wide", "a.new", "b.new", "c.new"]
// CHECK-SAME: %a.grad_1 = %a.grad : tensor<8xbf16>, {{.*}} %half_1 = %half
func.func @gradients(
    %a : tensor<8xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<3xf32> {logical.name = "b", logical.role = "state"},
    %c : tensor<5xf32> {logical.name = "c", logical.role = "param"},
    %a.grad : tensor<8xbf16> {logical.name = "a.grad", logical.role = "input"},
    %b.grad : tensor<3xf32> {logical.name = "b.grad", logical.role = "input"},
    %c.grad : tensor<5xf32> {logical.name = "c.grad", logical.role = "input"},
    %d.grad : tensor<5xf32> {logical.name = "d.grad", logical.role = "input"})
    -> (tensor<8xf32> {logical.updates = "a"}, tensor<3xf32> {logical.updates = "b"}, tensor<5xf32> {logical.updates = "c"},
        tensor<5xf32> {logical.name = "other"}) {
  %a.wide = logical.cast %a.grad {aicf.id = "a.wide", aicf.src = ["a.wide"]} : tensor<8xbf16> -> tensor<8xf32>
  %a.new = logical.sub %a, %a.wide {aicf.id = "a.new", aicf.src = ["a.new"]} : tensor<8xf32>
  %b.new = logical.sub %b, %b.grad {aicf.id = "b.new", aicf.src = ["b.new"]} : tensor<3xf32>
  %sum = logical.add %c.grad, %d.grad {aicf.id = "sum", aicf.src = ["sum"]} : tensor<5xf32>
  %half = logical.mul %sum, %sum {aicf.id = "half", aicf.src = ["half"]} : tensor<5xf32>
  %other = logical.neg %half {aicf.id = "other", aicf.src = ["other"]} : tensor<5xf32>
  %c.new = logical.sub %c, %half {aicf.id = "c.new", aicf.src = ["c.new"]} : tensor<5xf32>
  func.return %a.new, %b.new, %c.new, %other : tensor<8xf32>, tensor<3xf32>, tensor<5xf32>, tensor<5xf32>
}

// -----

// A chain that reads elements in another order stays outside, and one whose new value another chain needs; a number
// that another op reads is an operand.
// CHECK: rejected {turned.new = "it reads 'turned', whose elements are in another order in memory than those of the parameter (transpose): copy them into that order", a.new = "another update needs what is computed from its new value, and would wait for it"}
// CHECK-LABEL: func.func @outside
// CHECK: logical.add %step
// CHECK: logical.sub %w, %turned
// CHECK: logical.sub %a, %a.grad
// CHECK: emit.group "b.new" from ["b.new", "c.new"] ins(%b_1 = %b : tensor<5xf32>, %total_1 = %total
func.func @outside(
    %w : tensor<4x6xf32> {logical.name = "w", logical.role = "param"},
    %a : tensor<3xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<5xf32> {logical.name = "b", logical.role = "param"},
    %c : tensor<2xf32> {logical.name = "c", logical.role = "param"},
    %w.grad : tensor<6x4xf32> {logical.name = "w.grad", logical.role = "input"},
    %a.grad : tensor<3xf32> {logical.name = "a.grad", logical.role = "input"},
    %step : tensor<f32> {logical.name = "step", logical.role = "state"})
    -> (tensor<4x6xf32> {logical.updates = "w"}, tensor<3xf32> {logical.updates = "a"}, tensor<5xf32> {logical.updates = "b"},
        tensor<2xf32> {logical.updates = "c"}, tensor<f32> {logical.updates = "step"}, tensor<f32> {logical.name = "seen"}) {
  %one = logical.constant dense<1.0> {aicf.id = "one", aicf.src = ["one"]} : tensor<f32>
  %now = logical.add %step, %one {aicf.id = "now", aicf.src = ["now"]} : tensor<f32>
  %seen = logical.neg %now {aicf.id = "seen", aicf.src = ["seen"]} : tensor<f32>
  %turned = logical.transpose %w.grad {permutation = [1, 0], aicf.id = "turned", aicf.src = ["turned"]} : tensor<6x4xf32> -> tensor<4x6xf32>
  %turned.new = logical.sub %w, %turned {aicf.id = "turned.new", aicf.src = ["turned.new"]} : tensor<4x6xf32>
  %a.new = logical.sub %a, %a.grad {aicf.id = "a.new", aicf.src = ["a.new"]} : tensor<3xf32>
  %total = logical.reduce_sum %a.new {axes = [0], aicf.id = "total", aicf.src = ["total"]} : tensor<3xf32> -> tensor<f32>
  %spread = logical.broadcast %total {dimensions = [], aicf.id = "spread", aicf.src = ["b.new"]} : tensor<f32> -> tensor<5xf32>
  %b.new = logical.sub %b, %spread {aicf.id = "b.new", aicf.src = ["b.new"]} : tensor<5xf32>
  %two = logical.constant dense<2.0> {aicf.id = "two", aicf.src = ["two"]} : tensor<2xf32>
  %c.new = logical.mul %c, %two {aicf.id = "c.new", aicf.src = ["c.new"]} : tensor<2xf32>
  func.return %turned.new, %a.new, %b.new, %c.new, %now, %seen : tensor<4x6xf32>, tensor<3xf32>, tensor<5xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>
}

// -----

// One chain alone is left to the other fusing passes.
// CHECK-LABEL: func.func @alone
// CHECK-NOT: emit.group
func.func @alone(
    %w : tensor<4xf32> {logical.name = "w", logical.role = "param"},
    %w.grad : tensor<4xf32> {logical.name = "w.grad", logical.role = "input"}) -> (tensor<4xf32> {logical.updates = "w"}) {
  %w.new = logical.sub %w, %w.grad {aicf.id = "w.new", aicf.src = ["w.new"]} : tensor<4xf32>
  func.return %w.new : tensor<4xf32>
}

// -----

// A ring of losses, each at its place, is a part that counts its elements; places along several dims stay outside.
// CHECK: choice "one instruction updates 3 tensors, 3 results" {{.*}} rejected {grid.new = "it reads 'columns', whose elements follow from coordinates along several dimensions, and an update knows one; flatten it"}
// CHECK-LABEL: func.func @ring
// CHECK: emit.group "a.new" from ["a.new", "b.new", "is", "ring.new"]
// CHECK: logical.iota {axis = 0
// CHECK: emit.yield
// CHECK: %grid.new = logical.select
func.func @ring(
    %a : tensor<3xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<5xf32> {logical.name = "b", logical.role = "param"},
    %ring : tensor<8xf32> {logical.name = "ring", logical.role = "state"},
    %grid : tensor<2x4xf32> {logical.name = "grid", logical.role = "state"},
    %a.grad : tensor<3xf32> {logical.name = "a.grad", logical.role = "input"},
    %b.grad : tensor<5xf32> {logical.name = "b.grad", logical.role = "input"},
    %place : tensor<i64> {logical.name = "place", logical.role = "input"},
    %loss : tensor<f32> {logical.name = "loss", logical.role = "input"})
    -> (tensor<3xf32> {logical.updates = "a"}, tensor<5xf32> {logical.updates = "b"}, tensor<8xf32> {logical.updates = "ring"},
        tensor<2x4xf32> {logical.updates = "grid"}) {
  %a.new = logical.sub %a, %a.grad {aicf.id = "a.new", aicf.src = ["a.new"]} : tensor<3xf32>
  %b.new = logical.sub %b, %b.grad {aicf.id = "b.new", aicf.src = ["b.new"]} : tensor<5xf32>
  %places = logical.iota {axis = 0, aicf.id = "places", aicf.src = ["places"]} : tensor<8xi64>
  %wanted = logical.broadcast %place {dimensions = [], aicf.id = "wanted", aicf.src = ["wanted"]} : tensor<i64> -> tensor<8xi64>
  %is = logical.compare "eq" %places, %wanted {aicf.id = "is", aicf.src = ["is"]} : tensor<8xi64> -> tensor<8xi1>
  %spread = logical.broadcast %loss {dimensions = [], aicf.id = "spread", aicf.src = ["spread"]} : tensor<f32> -> tensor<8xf32>
  %ring.new = logical.select %is, %spread, %ring {aicf.id = "ring.new", aicf.src = ["ring.new"]} : tensor<8xi1>, tensor<8xf32>
  %columns = logical.iota {axis = 1, aicf.id = "columns", aicf.src = ["columns"]} : tensor<2x4xi64>
  %wanted.2 = logical.broadcast %place {dimensions = [], aicf.id = "wanted.2", aicf.src = ["wanted.2"]} : tensor<i64> -> tensor<2x4xi64>
  %is.2 = logical.compare "eq" %columns, %wanted.2 {aicf.id = "is.2", aicf.src = ["is.2"]} : tensor<2x4xi64> -> tensor<2x4xi1>
  %spread.2 = logical.broadcast %loss {dimensions = [], aicf.id = "spread.2", aicf.src = ["spread.2"]} : tensor<f32> -> tensor<2x4xf32>
  %grid.new = logical.select %is.2, %spread.2, %grid {aicf.id = "grid.new", aicf.src = ["grid.new"]} : tensor<2x4xi1>, tensor<2x4xf32>
  func.return %a.new, %b.new, %ring.new, %grid.new : tensor<3xf32>, tensor<5xf32>, tensor<8xf32>, tensor<2x4xf32>
}

// -----

// A gradient that comes through a reshape has its elements in the order of the parameter's: it keeps no update apart.
// CHECK-LABEL: func.func @reshaped
// CHECK: %g = logical.reshape %a.grad
// CHECK: emit.group "a.new" from ["a.new", "b.new"] ins(%a_1 = %a : tensor<2x4xf32>, %a.grad_1 = %a.grad : tensor<8xf32>,
func.func @reshaped(
    %a : tensor<2x4xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<3xf32> {logical.name = "b", logical.role = "state"},
    %a.grad : tensor<8xf32> {logical.name = "a.grad", logical.role = "input"},
    %b.grad : tensor<3xf32> {logical.name = "b.grad", logical.role = "input"})
    -> (tensor<2x4xf32> {logical.updates = "a"}, tensor<3xf32> {logical.updates = "b"}) {
  %g = logical.reshape %a.grad {aicf.id = "g", aicf.src = ["g"]} : tensor<8xf32> -> tensor<2x4xf32>
  %a.new = logical.sub %a, %g {aicf.id = "a.new", aicf.src = ["a.new"]} : tensor<2x4xf32>
  %b.new = logical.sub %b, %b.grad {aicf.id = "b.new", aicf.src = ["b.new"]} : tensor<3xf32>
  func.return %a.new, %b.new : tensor<2x4xf32>, tensor<3xf32>
}

// -----

// Two gradients that are slices of one value are parts as any other where their elements are neighbours in memory;
// columns of a matrix are none.
// CHECK: rejected {c.new = "it reads 'columns', whose elements are in another order in memory than those of the parameter (slice): copy them into that order"}
// CHECK-LABEL: func.func @slices
// CHECK: emit.group "a.new" from ["a.new", "b.new"]
// CHECK: logical.sub %c, %columns
func.func @slices(
    %a : tensor<2x4xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<12xf32> {logical.name = "b", logical.role = "param"},
    %c : tensor<5x2xf32> {logical.name = "c", logical.role = "param"},
    %grad : tensor<5x4xf32> {logical.name = "grad", logical.role = "input"})
    -> (tensor<2x4xf32> {logical.updates = "a"}, tensor<12xf32> {logical.updates = "b"}, tensor<5x2xf32> {logical.updates = "c"}) {
  %first = logical.slice %grad {starts = [0, 0], sizes = [2, 4], strides = [1, 1], aicf.id = "first", aicf.src = ["first"]} : tensor<5x4xf32> -> tensor<2x4xf32>
  %last = logical.slice %grad {starts = [2, 0], sizes = [3, 4], strides = [1, 1], aicf.id = "last", aicf.src = ["last"]} : tensor<5x4xf32> -> tensor<3x4xf32>
  %flat = logical.reshape %last {aicf.id = "flat", aicf.src = ["flat"]} : tensor<3x4xf32> -> tensor<12xf32>
  %columns = logical.slice %grad {starts = [0, 1], sizes = [5, 2], strides = [1, 1], aicf.id = "columns", aicf.src = ["columns"]} : tensor<5x4xf32> -> tensor<5x2xf32>
  %a.new = logical.sub %a, %first {aicf.id = "a.new", aicf.src = ["a.new"]} : tensor<2x4xf32>
  %b.new = logical.sub %b, %flat {aicf.id = "b.new", aicf.src = ["b.new"]} : tensor<12xf32>
  %c.new = logical.sub %c, %columns {aicf.id = "c.new", aicf.src = ["c.new"]} : tensor<5x2xf32>
  func.return %a.new, %b.new, %c.new : tensor<2x4xf32>, tensor<12xf32>, tensor<5x2xf32>
}
