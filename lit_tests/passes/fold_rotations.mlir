// RUN: aicf-opt %s -p 'assign-ids,fold-rotations,logical-dce' | filecheck %s

// Halves that are swapped and joined become a flip of pairs, whichever way round sums and products are written.
// CHECK: emit.decision "fold-rotations" ["y"] choice "pairs as a dimension" because "a half of each pair is read where it lies, so no concatenation is written"
// CHECK-LABEL: func.func @rotated
// CHECK-NEXT: %y.pairs = logical.reshape %x {aicf.id = "y.pairs", aicf.src = ["y"]} : tensor<2x5x8xf32> -> tensor<2x5x2x4xf32>
// CHECK-NEXT: %y.cosines = logical.reshape %c
// CHECK-NEXT: %y.sines = logical.reshape %s
// CHECK-NEXT: %y.other = logical.flip %y.pairs {axes = [2]
// CHECK-NOT: logical.concat
// CHECK: %y.signed = logical.select %y.first, %y.minus, %y.other
// CHECK-NEXT: %y.kept = logical.mul %y.pairs, %y.cosines
// CHECK-NEXT: %y.turned = logical.mul %y.signed, %y.sines
// CHECK-NEXT: %y.rotated = logical.add %y.kept, %y.turned {aicf.id = "y.rotated", aicf.src = ["y", "kept", "turned", "joined", "minus", "high", "low"]}
// CHECK-NEXT: %y.heads = logical.reshape %y.rotated {{.*}} : tensor<2x5x2x4xf32> -> tensor<2x5x8xf32>
// CHECK-NEXT: func.return %y.heads
func.func @rotated(
    %x : tensor<2x5x8xf32> {logical.name = "x", logical.role = "input"},
    %c : tensor<2x5x8xf32> {logical.name = "c", logical.role = "input"},
    %s : tensor<2x5x8xf32> {logical.name = "s", logical.role = "input"}) -> (tensor<2x5x8xf32> {logical.name = "y"}) {
  %low = logical.slice %x {starts = [0, 0, 0], sizes = [2, 5, 4], strides = [1, 1, 1]} : tensor<2x5x8xf32> -> tensor<2x5x4xf32>
  %high = logical.slice %x {starts = [0, 0, 4], sizes = [2, 5, 4], strides = [1, 1, 1]} : tensor<2x5x8xf32> -> tensor<2x5x4xf32>
  %minus = logical.neg %high : tensor<2x5x4xf32>
  %joined = logical.concat %minus, %low {axis = 2} : (tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x8xf32>
  %kept = logical.mul %c, %x : tensor<2x5x8xf32>
  %turned = logical.mul %joined, %s : tensor<2x5x8xf32>
  %y = logical.add %turned, %kept : tensor<2x5x8xf32>
  func.return %y : tensor<2x5x8xf32>
}

// The halves of another value, and halves in the order that they have, are no rotation.
// CHECK-LABEL: func.func @others
// CHECK: logical.concat
// CHECK: logical.concat
// CHECK-NOT: logical.flip
func.func @others(
    %x : tensor<5x8xf32> {logical.name = "x", logical.role = "input"},
    %z : tensor<5x8xf32> {logical.name = "z", logical.role = "input"}) -> (tensor<5x8xf32> {logical.name = "a"}, tensor<5x8xf32> {logical.name = "b"}) {
  %low = logical.slice %x {starts = [0, 0], sizes = [5, 4], strides = [1, 1]} : tensor<5x8xf32> -> tensor<5x4xf32>
  %high = logical.slice %x {starts = [0, 4], sizes = [5, 4], strides = [1, 1]} : tensor<5x8xf32> -> tensor<5x4xf32>
  %minus = logical.neg %high : tensor<5x4xf32>
  %swapped = logical.concat %minus, %low {axis = 1} : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x8xf32>
  %same = logical.concat %low, %minus {axis = 1} : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x8xf32>
  %kept = logical.mul %z, %z : tensor<5x8xf32>
  %other = logical.mul %swapped, %z : tensor<5x8xf32>
  %a = logical.add %kept, %other : tensor<5x8xf32>
  %own = logical.mul %x, %z : tensor<5x8xf32>
  %plain = logical.mul %same, %z : tensor<5x8xf32>
  %b = logical.add %own, %plain : tensor<5x8xf32>
  func.return %a, %b : tensor<5x8xf32>, tensor<5x8xf32>
}
