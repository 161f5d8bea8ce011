// RUN: aicf-opt %s -p assign-ids,to-evaluation | filecheck %s

// A dropout gives its operand, and what it drew by is gone with all that was computed of it.
// CHECK: emit.decision "to-evaluation" ["drop"] choice "evaluation: gives its operand" because "a dropout is for training"
// CHECK-LABEL: func.func @model(%x: tensor<4xf32> {logical.name = "x", logical.role = "input"})
func.func @model(%x: tensor<4xf32> {logical.name = "x", logical.role = "input"}, %seed: tensor<i64> {logical.name = "seed", logical.role = "meta"}, %step: tensor<i64> {logical.name = "step", logical.role = "meta"}) -> (tensor<4xf32> {logical.name = "y"}) {
  // CHECK-NEXT: %double = logical.add %x, %x {aicf.id = "double", aicf.src = ["double", "drop"]}
  // CHECK-NEXT: %y = logical.exp %double
  // CHECK-NEXT: func.return %y
  %double = logical.add %x, %x : tensor<4xf32>
  %offset = logical.step_inc %step : tensor<i64>
  %drop = logical.dropout %double, %seed, %offset {rate = 0.5} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  %y = logical.exp %drop : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// A meta that something else reads stays.
// CHECK-LABEL: func.func @counts(%x: tensor<4xf32> {{.*}}, %step: tensor<i64> {logical.name = "step", logical.role = "meta"})
func.func @counts(%x: tensor<4xf32> {logical.name = "x", logical.role = "input"}, %step: tensor<i64> {logical.name = "step", logical.role = "meta"}) -> (tensor<4xf32> {logical.name = "y2"}, tensor<i64> {logical.updates = "step"}) {
  // CHECK-NEXT: %next = logical.step_inc %step
  // CHECK-NEXT: func.return %x, %next
  %next = logical.step_inc %step : tensor<i64>
  %drop2 = logical.dropout %x, %step, %next {rate = 0.5} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return %drop2, %next : tensor<4xf32>, tensor<i64>
}

// What updates a parameter is a training step, whose dropout stays.
// CHECK-LABEL: func.func @step
func.func @step(%w: tensor<4xf32> {logical.name = "w", logical.role = "param"}, %seed: tensor<i64> {logical.name = "seed", logical.role = "meta"}) -> (tensor<4xf32> {logical.updates = "w"}) {
  // CHECK-NEXT: logical.dropout %w, %seed, %seed
  %drop3 = logical.dropout %w, %seed, %seed {rate = 0.5} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xf32>
  func.return %drop3 : tensor<4xf32>
}
