// RUN: aicf-opt %s --split-input-file -p 'set-target{target="cuda:sm_90a"},fuse-casts' | filecheck %s

// The casts of updated parameters are parts of one instruction, with what is computed of a cast; what reads them stands
// after it. The predicted times are in the ledger.
// CHECK: emit.decision "fuse-casts" ["w.low", "v.low", "v.twice"]
// CHECK-SAME: choice "one instruction computes what is read of 2 parameters"
// CHECK-SAME: cost {parts = 2 : i64, unfused_us = {{.*}} : f64, fused_us = {{.*}} : f64}
// CHECK-LABEL: func.func @casts
// CHECK-NEXT: logical.constant
// CHECK-NEXT: %w.low, %v.twice = emit.group "w.low" from ["w.low", "v.low", "v.twice"]
// CHECK-SAME: ins(%w_1 = %w : tensor<64x32xf32>, %v_1 = %v : tensor<64x64xf32>)
// CHECK: logical.matmul %x, %w.low
// CHECK-NEXT: logical.matmul %x, %v.twice
func.func @casts(
    %x : tensor<8x64xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<64x32xf32> {logical.name = "w", logical.role = "param"},
    %v : tensor<64x64xf32> {logical.name = "v", logical.role = "param"},
    %w.new : tensor<64x32xf32> {logical.name = "w.next", logical.role = "input"},
    %v.new : tensor<64x64xf32> {logical.name = "v.next", logical.role = "input"})
    -> (tensor<8x32xbf16> {logical.name = "a"}, tensor<8x64xbf16> {logical.name = "b"},
        tensor<64x32xf32> {logical.updates = "w"}, tensor<64x64xf32> {logical.updates = "v"}) {
  %w.low = logical.cast %w {aicf.id = "w.low", aicf.src = ["w.low"]} : tensor<64x32xf32> -> tensor<64x32xbf16>
  %h = logical.matmul %x, %w.low {aicf.id = "h", aicf.src = ["h"]} : (tensor<8x64xbf16>, tensor<64x32xbf16>) -> tensor<8x32xbf16>
  %two = logical.constant dense<2.0> {aicf.id = "two", aicf.src = ["v.twice"]} : tensor<64x64xbf16>
  %v.low = logical.cast %v {aicf.id = "v.low", aicf.src = ["v.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %v.twice = logical.mul %v.low, %two {aicf.id = "v.twice", aicf.src = ["v.twice"]} : tensor<64x64xbf16>
  %y = logical.matmul %x, %v.twice {aicf.id = "y", aicf.src = ["y"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  func.return %h, %y, %w.new, %v.new : tensor<8x32xbf16>, tensor<8x64xbf16>, tensor<64x32xf32>, tensor<64x64xf32>
}

// -----

// Outside stay: a cast that one elementwise op alone reads (its loops take it along), one that is computed again, that
// of a parameter which no result updates, what reads two tensors, and a new value. One chain alone is no group.
// CHECK-LABEL: func.func @outside
// CHECK-NOT: emit.group
func.func @outside(
    %x : tensor<8x64xbf16> {logical.name = "x", logical.role = "input"},
    %b : tensor<8x64xf32> {logical.name = "b", logical.role = "param"},
    %w : tensor<64x64xf32> {logical.name = "w", logical.role = "param"},
    %v : tensor<64x64xf32> {logical.name = "v", logical.role = "param"},
    %c : tensor<64x64xf32> {logical.name = "c", logical.role = "param"},
    %u : tensor<64x64xf32> {logical.name = "u", logical.role = "param"},
    %next : tensor<64x64xf32> {logical.name = "next", logical.role = "input"})
    -> (tensor<8x64xbf16> {logical.name = "r"}, tensor<8x64xf32> {logical.updates = "b"},
        tensor<64x64xf32> {logical.updates = "w"}, tensor<64x64xf32> {logical.updates = "v"}, tensor<64x64xf32> {logical.updates = "u"}) {
  %b.low = logical.cast %b {aicf.id = "b.low", aicf.src = ["b.low"]} : tensor<8x64xf32> -> tensor<8x64xbf16>
  %s = logical.add %x, %b.low {aicf.id = "s", aicf.src = ["s"]} : tensor<8x64xbf16>
  %w.low = logical.cast %w {aicf.id = "w.low", aicf.src = ["w.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %h = logical.matmul %s, %w.low {aicf.id = "h", aicf.src = ["h"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  %v.low.again = logical.cast %v {aicf.id = "v.low.again", aicf.src = ["v.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %i = logical.matmul %h, %v.low.again {aicf.id = "i", aicf.src = ["i"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  %c.low = logical.cast %c {aicf.id = "c.low", aicf.src = ["c.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %j = logical.matmul %i, %c.low {aicf.id = "j", aicf.src = ["j"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  %sum = logical.add %u, %v {aicf.id = "sum", aicf.src = ["sum"]} : tensor<64x64xf32>
  %sum.low = logical.cast %sum {aicf.id = "sum.low", aicf.src = ["sum.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %k = logical.matmul %j, %sum.low {aicf.id = "k", aicf.src = ["k"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  %u.new = logical.neg %u {aicf.id = "u.new", aicf.src = ["u.new"]} : tensor<64x64xf32>
  func.return %k, %b, %next, %next, %u.new : tensor<8x64xbf16>, tensor<8x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// Each micro-batch has instructions of its own.
// CHECK: emit.decision "fuse-casts" ["w.low@batch0", "v.low@batch0"]
// CHECK-LABEL: func.func @micro_batches
// CHECK: emit.group "w.low@batch0" from ["w.low", "v.low"]
// CHECK: logical.cast %w
// CHECK-NOT: emit.group
func.func @micro_batches(
    %x : tensor<8x64xbf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<64x64xf32> {logical.name = "w", logical.role = "param"},
    %v : tensor<64x64xf32> {logical.name = "v", logical.role = "param"},
    %next : tensor<64x64xf32> {logical.name = "next", logical.role = "input"})
    -> (tensor<8x64xbf16> {logical.name = "r"}, tensor<64x64xf32> {logical.updates = "w"}, tensor<64x64xf32> {logical.updates = "v"}) {
  %w.low = logical.cast %w {aicf.id = "w.low@batch0", aicf.src = ["w.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %h = logical.matmul %x, %w.low {aicf.id = "h@batch0", aicf.src = ["h"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  %v.low = logical.cast %v {aicf.id = "v.low@batch0", aicf.src = ["v.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %i = logical.matmul %h, %v.low {aicf.id = "i@batch0", aicf.src = ["i"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  %w.second = logical.cast %w {aicf.id = "w.low@batch1", aicf.src = ["w.low"]} : tensor<64x64xf32> -> tensor<64x64xbf16>
  %j = logical.matmul %i, %w.second {aicf.id = "j@batch1", aicf.src = ["j"]} : (tensor<8x64xbf16>, tensor<64x64xbf16>) -> tensor<8x64xbf16>
  func.return %j, %next, %next : tensor<8x64xbf16>, tensor<64x64xf32>, tensor<64x64xf32>
}
