// RUN: not aicf-opt %s -p assign-ids 2>&1 | filecheck %s

func.func @twice(%x : tensor<4xf32>) -> tensor<4xf32> {
  %0 = logical.exp %x {aicf.id = "a"} : tensor<4xf32>
  // CHECK: assign_ids_invalid.mlir:[[# @LINE + 1]]:3: error: logical.relu "a": another op has this id too; change one aicf.id or remove it
  %1 = logical.relu %0 {aicf.id = "a"} : tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
