// RUN: aicf-opt %s -p logical-dce | filecheck %s

// Ops go when their last user goes; the ledger keeps the ids, in program order.
// CHECK: emit.decision "logical-dce" ["dead", "deader"] choice "removed" because "no result depends on it"
// CHECK-LABEL: func.func @chain
func.func @chain(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: %live = logical.exp %x
  %live = logical.exp %x {aicf.id = "live", aicf.src = ["live"]} : tensor<4xf32>
  %dead = logical.relu %live {aicf.id = "dead", aicf.src = ["dead"]} : tensor<4xf32>
  %0 = logical.neg %dead : tensor<4xf32>
  %deader = logical.relu %0 {aicf.id = "deader", aicf.src = ["deader"]} : tensor<4xf32>
  // CHECK-NEXT: func.return %live
  func.return %live : tensor<4xf32>
}
