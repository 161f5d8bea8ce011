// RUN: aicf-opt %s -p logical-cse | filecheck %s

// CHECK: emit.decision "logical-cse" ["b", "c"] choice "merged into a" because "they compute the same"

// Names, ids and locations do not count; the first op stands for all that were merged into it.
// CHECK-LABEL: func.func @identity
func.func @identity(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: %a = logical.exp %x {aicf.id = "a", aicf.src = ["a", "b", "z", "c"]}
  %a = logical.exp %x {aicf.id = "a", aicf.src = ["a"]} : tensor<4xf32> loc("one")
  %b = logical.exp %x {aicf.id = "b", aicf.src = ["b", "z"]} : tensor<4xf32> loc("two")
  %c = logical.exp %x {aicf.id = "c", aicf.src = ["c"]} : tensor<4xf32>
  // CHECK-NEXT: logical.add %a, %a
  %s = logical.add %b, %c : tensor<4xf32>
  func.return %s : tensor<4xf32>
}

// What equal ops compute from is equal too: chains merge in one run. Sums do not care for the order, differences do.
// CHECK-LABEL: func.func @chains
func.func @chains(%x : tensor<4xf32>, %y : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: %0 = logical.add %x, %y
  %0 = logical.add %x, %y : tensor<4xf32>
  %1 = logical.add %y, %x : tensor<4xf32>
  // CHECK-NEXT: %1 = logical.exp %0
  %2 = logical.exp %0 : tensor<4xf32>
  %3 = logical.exp %1 : tensor<4xf32>
  // CHECK-NEXT: %2 = logical.sub %1, %x
  %4 = logical.sub %2, %x : tensor<4xf32>
  // CHECK-NEXT: %3 = logical.sub %x, %1
  %5 = logical.sub %x, %3 : tensor<4xf32>
  // CHECK-NEXT: %4 = logical.mul %2, %3
  %6 = logical.mul %4, %5 : tensor<4xf32>
  func.return %6 : tensor<4xf32>
}

// Properties, result types and attributes of other dialects make a difference.
// CHECK-LABEL: func.func @different
func.func @different(%x : tensor<2x2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: axes = [0]
  %0 = logical.reduce_sum %x {axes = [0]} : tensor<2x2xf32> -> tensor<2xf32>
  // CHECK-NEXT: axes = [1]
  %1 = logical.reduce_sum %x {axes = [1]} : tensor<2x2xf32> -> tensor<2xf32>
  // CHECK-NEXT: tensor<4xf32>
  %2 = logical.reshape %x : tensor<2x2xf32> -> tensor<4xf32>
  // CHECK-NEXT: tensor<1x4xf32>
  %3 = logical.reshape %x : tensor<2x2xf32> -> tensor<1x4xf32>
  // CHECK-NEXT: logical.add
  %4 = logical.add %0, %1 : tensor<2xf32>
  // CHECK-NEXT: logical.add {{.*}}my.note = "apart"
  %5 = logical.add %0, %1 {my.note = "apart"} : tensor<2xf32>
  func.return %5 : tensor<2xf32>
}

// A program is a scope of its own.
// CHECK-LABEL: func.func @scope
func.func @scope(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: logical.exp
  %0 = logical.exp %x : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
