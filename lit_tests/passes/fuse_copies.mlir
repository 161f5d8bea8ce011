// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},materialize-views,fuse-epilogues' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"heads.t\": \"cpu.copy\"}}"},materialize-views,fuse-epilogues' | filecheck %s --check-prefix=PINNED

// CHECK: emit.decision "fuse-epilogues" ["heads", "heads.t"] choice "one kernel with the copy" because "its rows are written where the copy would put them, so no copy runs"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["columns"] choice "alone"
// CHECK-NEXT: emit.decision "fuse-epilogues" ["twice"] choice "alone"
// CHECK-NEXT: }
// PINNED: emit.decision "fuse-epilogues" ["heads"] choice "alone"

// The rows of all heads lie side by side: the product writes each there.
// CHECK-LABEL: func.func @rows
// CHECK-NEXT: %m = emit.group "heads" from ["heads", "heads.t"] ins(%{{.*}}) -> (tensor<5x3x8xf32>) {
// CHECK-NEXT:   logical.matmul
// CHECK-NEXT:   logical.transpose
// CHECK-NEXT:   emit.yield
// CHECK-NEXT: }
// CHECK-NEXT: logical.reshape %m
// CHECK-NOT: emit.group
// PINNED-LABEL: func.func @rows
// PINNED: emit.group "heads" from ["heads"]
// PINNED: emit.group "heads.t" from ["heads.t"]
func.func @rows(
    %x : tensor<3x5x6xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<3x6x8xf32> {logical.name = "w", logical.role = "input"}) -> (tensor<5x24xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "heads", aicf.src = ["heads"]} : (tensor<3x5x6xf32>, tensor<3x6x8xf32>) -> tensor<3x5x8xf32>
  %t = logical.transpose %m {permutation = [1, 0, 2], aicf.id = "heads.t", aicf.src = ["heads.t"]} : tensor<3x5x8xf32> -> tensor<5x3x8xf32>
  %y = logical.reshape %t {aicf.id = "heads.r", aicf.src = ["heads.r"]} : tensor<5x3x8xf32> -> tensor<5x24xf32>
  func.return %y : tensor<5x24xf32>
}

// Columns that come apart are written faster side by side, and turned by a copy.
// CHECK-LABEL: func.func @columns
// CHECK: emit.group "columns" from ["columns"]
// CHECK: emit.group "columns.t" from ["columns.t"]
func.func @columns(
    %x : tensor<3x5x6xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<3x6x8xf32> {logical.name = "w", logical.role = "input"}) -> (tensor<8x15xf32> {logical.name = "y"}) {
  %m = logical.matmul %x, %w {aicf.id = "columns", aicf.src = ["columns"]} : (tensor<3x5x6xf32>, tensor<3x6x8xf32>) -> tensor<3x5x8xf32>
  %t = logical.transpose %m {permutation = [2, 1, 0], aicf.id = "columns.t", aicf.src = ["columns.t"]} : tensor<3x5x8xf32> -> tensor<8x5x3xf32>
  %y = logical.reshape %t {aicf.id = "columns.r", aicf.src = ["columns.r"]} : tensor<8x5x3xf32> -> tensor<8x15xf32>
  func.return %y : tensor<8x15xf32>
}

// What another op reads as it is stays where it is.
// CHECK-LABEL: func.func @twice
// CHECK: emit.group "twice" from ["twice"]
// CHECK: emit.group "twice.t" from ["twice.t"]
func.func @twice(
    %x : tensor<3x5x6xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<3x6x8xf32> {logical.name = "w", logical.role = "input"})
    -> (tensor<5x24xf32> {logical.name = "y"}, tensor<3x5xf32> {logical.name = "z"}) {
  %m = logical.matmul %x, %w {aicf.id = "twice", aicf.src = ["twice"]} : (tensor<3x5x6xf32>, tensor<3x6x8xf32>) -> tensor<3x5x8xf32>
  %t = logical.transpose %m {permutation = [1, 0, 2], aicf.id = "twice.t", aicf.src = ["twice.t"]} : tensor<3x5x8xf32> -> tensor<5x3x8xf32>
  %y = logical.reshape %t {aicf.id = "twice.r", aicf.src = ["twice.r"]} : tensor<5x3x8xf32> -> tensor<5x24xf32>
  %s = logical.reduce_sum %m {axes = [2], aicf.id = "twice.sum", aicf.src = ["twice.sum"]} : tensor<3x5x8xf32> -> tensor<3x5xf32>
  func.return %y, %s : tensor<5x24xf32>, tensor<3x5xf32>
}
