// RUN: aicf-opt %s -p assign-ids | filecheck %s
// RUN: aicf-opt %s -p assign-ids,assign-ids | filecheck %s

// An explicit location names the op, else its SSA name does, else the op's kind and an ordinal.
// CHECK-LABEL: func.func @origins
func.func @origins(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: logical.exp %x {aicf.id = "features", aicf.src = ["features"]}
  %a = logical.exp %x : tensor<4xf32> loc("features")
  // CHECK-NEXT: logical.relu %a {aicf.id = "act", aicf.src = ["act"]}
  %act = logical.relu %a : tensor<4xf32>
  // CHECK-NEXT: logical.relu %act {aicf.id = "relu0", aicf.src = ["relu0"]}
  %0 = logical.relu %act : tensor<4xf32>
  // CHECK-NEXT: logical.relu %0 {aicf.id = "relu1", aicf.src = ["relu1"]}
  %1 = logical.relu %0 : tensor<4xf32>
  // A position in a file is no name.
  // CHECK-NEXT: logical.tanh %1 {aicf.id = "tanh0", aicf.src = ["tanh0"]}
  %2 = logical.tanh %1 : tensor<4xf32> loc("model.py":7:1)
  func.return %2 : tensor<4xf32>
}

// Ids are unique in the module; an id that is there stays, also where a name would have taken it.
// CHECK-LABEL: func.func @unique
func.func @unique(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: aicf.id = "act_1", aicf.src = ["act_1"]
  %act = logical.exp %x : tensor<4xf32>
  // CHECK-NEXT: aicf.id = "act_2", aicf.src = ["act_2"]
  %act_7 = logical.exp %act : tensor<4xf32>
  // CHECK-NEXT: aicf.id = "mine_1", aicf.src = ["mine_1"]
  %mine = logical.exp %act_7 : tensor<4xf32>
  // CHECK-NEXT: aicf.id = "mine", aicf.src = ["fc1", "fc2"]
  %3 = logical.exp %mine {aicf.id = "mine", aicf.src = ["fc1", "fc2"]} : tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
