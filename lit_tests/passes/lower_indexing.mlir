// RUN: aicf-opt %s -p 'assign-ids,lower-logical' | filecheck %s

// Setting rows is the last update of each, where there is one: a read like any other.
// CHECK-LABEL: func.func @set
func.func @set(%x : tensor<4x3xf32> {logical.name = "x", logical.role = "input"}, %i : tensor<5xi64> {logical.name = "i", logical.role = "input"}, %u : tensor<5x3xf32> {logical.name = "u", logical.role = "input"}) -> (tensor<4x3xf32> {logical.name = "y"}) {
  // CHECK: %[[LAST:.*]] = logical.last_update %i {rows = 4, aicf.id = "y.last"
  // CHECK: %[[NEW:.*]] = logical.gather %u, %[[LAST]] {axis = 0
  // CHECK: %[[HAS:.*]] = logical.compare "ge" %[[LAST]], %{{.*}}
  // CHECK: %[[ROWS:.*]] = logical.broadcast %[[HAS]] {dimensions = [0]
  // CHECK: logical.select %[[ROWS]], %[[NEW]], %x
  %y = logical.scatter %x, %i, %u {mode = "set"} : (tensor<4x3xf32>, tensor<5xi64>, tensor<5x3xf32>) -> tensor<4x3xf32>
  func.return %y : tensor<4x3xf32>
}

// One row is not looked for.
// CHECK-LABEL: func.func @one
func.func @one(%x : tensor<4x3xf32> {logical.name = "x", logical.role = "input"}, %i : tensor<1xi64> {logical.name = "i", logical.role = "input"}, %u : tensor<1x3xf32> {logical.name = "u", logical.role = "input"}) -> (tensor<4x3xf32> {logical.name = "y"}) {
  // CHECK: %[[INDEX:.*]] = logical.reshape %i {{.*}} -> tensor<i64>
  // CHECK: logical.write_row %u, %[[INDEX]], %x {axis = 0
  %y = logical.scatter %x, %i, %u {mode = "set"} : (tensor<4x3xf32>, tensor<1xi64>, tensor<1x3xf32>) -> tensor<4x3xf32>
  func.return %y : tensor<4x3xf32>
}

// Combining all updates of a row is primitive; elements along an axis become rows of one element each.
// CHECK-LABEL: func.func @add
func.func @add(%x : tensor<4x3xf32> {logical.name = "x", logical.role = "input"}, %i : tensor<2x3xi64> {logical.name = "i", logical.role = "input"}, %u : tensor<2x3xf32> {logical.name = "u", logical.role = "input"}) -> (tensor<4x3xf32> {logical.name = "y"}) {
  // CHECK: logical.iota {axis = 1
  // CHECK: %[[ROWS:.*]] = logical.reshape %{{.*}} {{.*}} : tensor<2x3xi64> -> tensor<6xi64>
  // CHECK: %[[X:.*]] = logical.reshape %x {{.*}} : tensor<4x3xf32> -> tensor<12xf32>
  // CHECK: %[[U:.*]] = logical.reshape %u {{.*}} : tensor<2x3xf32> -> tensor<6xf32>
  // CHECK: logical.scatter_combine %[[X]], %[[ROWS]], %[[U]] {mode = "add"
  %y = logical.scatter_elements %x, %i, %u {axis = 0, mode = "add"} : (tensor<4x3xf32>, tensor<2x3xi64>, tensor<2x3xf32>) -> tensor<4x3xf32>
  func.return %y : tensor<4x3xf32>
}

// Where all elements of a slice share their index, the slice is a row; each of the leading dimensions has its own.
// CHECK-LABEL: func.func @slices
func.func @slices(%x : tensor<2x5x3xf32> {logical.name = "x", logical.role = "input"}, %i : tensor<2xi64> {logical.name = "i", logical.role = "input"}, %u : tensor<2x1x3xf32> {logical.name = "u", logical.role = "input"}) -> (tensor<2x5x3xf32> {logical.name = "y"}, tensor<2x5x3xf32> {logical.name = "z"}) {
  %one = logical.reshape %i : tensor<2xi64> -> tensor<2x1x1xi64>
  %all = logical.broadcast %one {dimensions = [0, 1, 2]} : tensor<2x1x1xi64> -> tensor<2x1x3xi64>
  // CHECK: logical.write_row %u, %i, %x {axis = 1
  %y = logical.scatter_elements %x, %all, %u {axis = 1, mode = "set"} : (tensor<2x5x3xf32>, tensor<2x1x3xi64>, tensor<2x1x3xf32>) -> tensor<2x5x3xf32>
  // CHECK-NOT: logical.write_row
  // CHECK: logical.scatter_combine
  %z = logical.scatter_elements %x, %all, %u {axis = 1, mode = "add"} : (tensor<2x5x3xf32>, tensor<2x1x3xi64>, tensor<2x1x3xf32>) -> tensor<2x5x3xf32>
  func.return %y, %z : tensor<2x5x3xf32>, tensor<2x5x3xf32>
}

// One-hot rows are a comparison of the index with the coordinate; tiling repeats dimensions of its own.
// CHECK-LABEL: func.func @spread
func.func @spread(%i : tensor<5xi32> {logical.name = "i", logical.role = "input"}, %x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<5x4xf32> {logical.name = "y"}, tensor<4x3xf32> {logical.name = "z"}) {
  %on = logical.constant dense<1.0> : tensor<f32>
  %off = logical.constant dense<0.0> : tensor<f32>
  // CHECK: %[[COORDINATE:.*]] = logical.iota {axis = 1,
  // CHECK: logical.compare "eq" %{{.*}}, %[[COORDINATE]]
  // CHECK: logical.select
  %y = logical.one_hot %i, %on, %off {axis = 1, depth = 4} : (tensor<5xi32>, tensor<f32>, tensor<f32>) -> tensor<5x4xf32>
  // CHECK: %[[APART:.*]] = logical.reshape %x {{.*}} -> tensor<1x2x1x3xf32>
  // CHECK: %[[TWICE:.*]] = logical.broadcast %[[APART]] {{.*}} -> tensor<2x2x1x3xf32>
  // CHECK: logical.reshape %[[TWICE]] {{.*}} -> tensor<4x3xf32>
  %z = logical.tile %x {repeats = [2, 1]} : (tensor<2x3xf32>) -> tensor<4x3xf32>
  func.return %y, %z : tensor<5x4xf32>, tensor<4x3xf32>
}
