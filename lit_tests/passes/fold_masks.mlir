// RUN: aicf-opt %s -p 'assign-ids,fold-masks,logical-dce' | filecheck %s

// A mask of comparisons of positions, with more that is true everywhere, hides what comes after the query.
// CHECK: emit.decision "fold-masks" ["none"] choice "dropped" because "what it chooses by follows from coordinates alone, and is the same everywhere"
// CHECK: emit.decision "fold-masks" ["y"] choice "causal" because "it follows from coordinates alone, and hides exactly the keys that come after the query"
// CHECK-LABEL: func.func @positions
// CHECK-NEXT: %y = logical.attention %q, %k, %k {causal, past = 2, aicf.id = "y", aicf.src = ["y", "none"]}
// CHECK-NEXT: func.return %y
func.func @positions(
    %q : tensor<2x3x4x8xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x6x8xf32> {logical.name = "k", logical.role = "input"}) -> (tensor<2x3x4x8xf32> {logical.name = "y"}) {
  %rows = logical.iota {axis = 2} : tensor<2x1x4x6xi64>
  %columns = logical.iota {axis = 3} : tensor<2x1x4x6xi64>
  %two = logical.constant dense<2> : tensor<2x1x4x6xi64>
  %last = logical.add %rows, %two : tensor<2x1x4x6xi64>
  %early = logical.compare "le" %columns, %last : tensor<2x1x4x6xi64> -> tensor<2x1x4x6xi1>
  %whole = logical.compare "ge" %columns, %columns : tensor<2x1x4x6xi64> -> tensor<2x1x4x6xi1>
  %mask = logical.and %early, %whole : tensor<2x1x4x6xi1>
  %any = logical.reduce_any %mask {axes = [3], keepdims} : tensor<2x1x4x6xi1> -> tensor<2x1x4x1xi1>
  %blind = logical.not %any : tensor<2x1x4x1xi1>
  %blinded = logical.broadcast %blind {dimensions = [0, 1, 2, 3]} : tensor<2x1x4x1xi1> -> tensor<2x3x4x8xi1>
  %y = logical.attention %q, %k, %k, %mask : (tensor<2x3x4x8xf32>, tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>, tensor<2x1x4x6xi1>) -> tensor<2x3x4x8xf32>
  %zero = logical.constant dense<0.0> : tensor<2x3x4x8xf32>
  %none = logical.select %blinded, %zero, %y : tensor<2x3x4x8xi1>, tensor<2x3x4x8xf32>
  func.return %none : tensor<2x3x4x8xf32>
}

// One that hides nothing goes.
// CHECK-LABEL: func.func @whole
// CHECK-NEXT: logical.attention %q, %q, %q {past = 0,
func.func @whole(%q : tensor<3x4x8xf32> {logical.name = "q", logical.role = "input"}) -> (tensor<3x4x8xf32> {logical.name = "y"}) {
  %rows = logical.iota {axis = 0} : tensor<4x4xi32>
  %mask = logical.compare "eq" %rows, %rows : tensor<4x4xi32> -> tensor<4x4xi1>
  %y = logical.attention %q, %q, %q, %mask : (tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<4x4xi1>) -> tensor<3x4x8xf32>
  func.return %y : tensor<3x4x8xf32>
}

// One that hides others, here a window, stays, and so does one of an input.
// CHECK-LABEL: func.func @others
// CHECK: logical.attention %q, %q, %q, %window {
// CHECK: logical.attention %a, %a, %a, %given {
func.func @others(
    %q : tensor<3x4x8xf32> {logical.name = "q", logical.role = "input"},
    %given : tensor<4x4xi1> {logical.name = "given", logical.role = "input"}) -> (tensor<3x4x8xf32> {logical.name = "y"}) {
  %rows = logical.iota {axis = 0} : tensor<4x4xi32>
  %columns = logical.iota {axis = 1} : tensor<4x4xi32>
  %one = logical.constant dense<1> : tensor<4x4xi32>
  %last = logical.add %columns, %one : tensor<4x4xi32>
  %early = logical.compare "le" %columns, %rows : tensor<4x4xi32> -> tensor<4x4xi1>
  %near = logical.compare "ge" %last, %rows : tensor<4x4xi32> -> tensor<4x4xi1>
  %window = logical.and %early, %near : tensor<4x4xi1>
  %a = logical.attention %q, %q, %q, %window : (tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<4x4xi1>) -> tensor<3x4x8xf32>
  %y = logical.attention %a, %a, %a, %given : (tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<4x4xi1>) -> tensor<3x4x8xf32>
  func.return %y : tensor<3x4x8xf32>
}

// What is the same for all queries is read once for all, without the part that is true everywhere.
// CHECK-LABEL: func.func @padding
// CHECK: %seen = logical.reshape %given {{.*}} -> tensor<2x1x1x6xi1>
// CHECK-NEXT: %x = logical.attention %q, %k, %k, %seen {
// CHECK-NEXT: %y = logical.attention %x, %k, %k, %added {causal, past = 2,
// CHECK-NEXT: func.return
func.func @padding(
    %q : tensor<2x3x4x8xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x6x8xf32> {logical.name = "k", logical.role = "input"},
    %given : tensor<2x6xi1> {logical.name = "given", logical.role = "input"},
    %added : tensor<4x6xf32> {logical.name = "added", logical.role = "input"}) -> (tensor<2x3x4x8xf32> {logical.name = "y"}) {
  %rows = logical.iota {axis = 2} : tensor<1x1x4x1xi64>
  %zero = logical.constant dense<0> : tensor<1x1x4x1xi64>
  %there = logical.compare "ge" %rows, %zero : tensor<1x1x4x1xi64> -> tensor<1x1x4x1xi1>
  %whole = logical.broadcast %there {dimensions = [0, 1, 2, 3]} : tensor<1x1x4x1xi1> -> tensor<2x1x4x6xi1>
  %seen = logical.reshape %given : tensor<2x6xi1> -> tensor<2x1x1x6xi1>
  %repeated = logical.broadcast %seen {dimensions = [0, 1, 2, 3]} : tensor<2x1x1x6xi1> -> tensor<2x1x4x6xi1>
  %mask = logical.and %whole, %repeated : tensor<2x1x4x6xi1>
  %x = logical.attention %q, %k, %k, %mask : (tensor<2x3x4x8xf32>, tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>, tensor<2x1x4x6xi1>) -> tensor<2x3x4x8xf32>
  %heads = logical.broadcast %added {dimensions = [2, 3]} : tensor<4x6xf32> -> tensor<2x3x4x6xf32>
  %y = logical.attention %x, %k, %k, %heads {causal, past = 2} : (tensor<2x3x4x8xf32>, tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>, tensor<2x3x4x6xf32>) -> tensor<2x3x4x8xf32>
  func.return %y : tensor<2x3x4x8xf32>
}
