// RUN: aicf-opt %s -p 'assign-ids,lower-onnx,verify-logical' | filecheck %s
// RUN: aicf-opt %s -p 'assign-ids,lower-onnx,logical-dce' | filecheck %s --check-prefix=PARAMS

// A node becomes ops called as it is; the one of its first result has its very name. An @ in a name would be a bucket.
// CHECK-LABEL: func.func @layer(%x: tensor<2x4xf32> {logical.name = "x", logical.role = "input"}, %b: tensor<4xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<2x4xf32> {logical.name = "y"})
// CHECK-NEXT:    %plus.broadcast = logical.broadcast %b {dimensions = [1], aicf.id = "plus.broadcast", aicf.src = ["plus"]} : tensor<4xf32> -> tensor<2x4xf32>
// CHECK-NEXT:    %plus = logical.add %x, %plus.broadcast {aicf.id = "plus", aicf.src = ["plus"]} : tensor<2x4xf32>
// CHECK-NEXT:    %act = logical.relu %plus {aicf.id = "act_1", aicf.src = ["act_1"]} : tensor<2x4xf32>
// CHECK-NEXT:    func.return %act : tensor<2x4xf32>
// A parameter that nothing reads is gone.
// PARAMS-LABEL: func.func @layer
// PARAMS-NOT: "unread"
// PARAMS: func.return
onnx.graph @layer opsets {"" = 17} (%x : !onnx.value<f32, [2, 4]> {logical.name = "x", logical.role = "input"}, %b : !onnx.value<f32, [4]> {logical.name = "b", logical.role = "param"}, %u : !onnx.value<f32, [900]> {logical.name = "unread", logical.role = "param"}) -> ["y"] {
  %sum = onnx.node "Add" "plus"(%x, %b) : (!onnx.value<f32, [2, 4]>, !onnx.value<f32, [4]>) -> !onnx.value
  %y = onnx.node "Relu" "act@1"(%sum) : (!onnx.value) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// Arithmetic on shapes is done on the way, and nothing of it is left.
// CHECK-LABEL: func.func @flat
// CHECK-NEXT:    %to = logical.reshape %x {aicf.id = "to", aicf.src = ["to"]} : tensor<2x3x4xf32> -> tensor<2x12xf32>
// CHECK-NEXT:    func.return %to
onnx.graph @flat opsets {"" = 17} (%x : !onnx.value<f32, [2, 3, 4]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %shape = onnx.node "Shape" "shape"(%x) : (!onnx.value<f32, [2, 3, 4]>) -> !onnx.value
  %zero = onnx.constant dense<[0]> : tensor<1xi64>
  %rest = onnx.constant dense<[-1]> : tensor<1xi64>
  %n = onnx.node "Gather" "pick"(%shape, %zero) : (!onnx.value, !onnx.value<i64, [1]>) -> !onnx.value
  %sizes = onnx.node "Concat" "sizes"(%n, %rest) {axis = 0 : i64} : (!onnx.value, !onnx.value<i64, [1]>) -> !onnx.value
  %y = onnx.node "Reshape" "to"(%x, %sizes) : (!onnx.value<f32, [2, 3, 4]>, !onnx.value) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// What is known and large is written as the ops that compute it, which a constant of the program could not hold.
// CHECK-LABEL: func.func @large
// CHECK:         logical.broadcast
// CHECK:         %y = logical.add
// CHECK-NOT:     dense<"0x
// CHECK:         func.return
onnx.graph @large opsets {"" = 17} (%x : !onnx.value<f32, [40, 40]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %row = onnx.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %to = onnx.constant dense<[1, 20]> : tensor<2xi64>
  %one = onnx.constant dense<[40, 40]> : tensor<2xi64>
  %wide = onnx.constant dense<[1, 2]> : tensor<2xi64>
  %shaped = onnx.node "Reshape" "shaped"(%row, %wide) : (!onnx.value<f32, [2]>, !onnx.value<i64, [2]>) -> !onnx.value
  %tiled = onnx.node "Tile" "tiled"(%shaped, %to) : (!onnx.value, !onnx.value<i64, [2]>) -> !onnx.value
  %whole = onnx.node "Expand" "whole"(%tiled, %one) : (!onnx.value, !onnx.value<i64, [2]>) -> !onnx.value
  %y = onnx.node "Add" "y"(%x, %whole) : (!onnx.value<f32, [40, 40]>, !onnx.value) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// A choice is made and a loop unrolled; the copies of a body are told apart by the number of the iteration.
// CHECK-LABEL: func.func @flow
// CHECK-NEXT:    %step.0 = logical.add %x, %x {aicf.id = "step.0", aicf.src = ["step"]} : tensor<3xf32>
// CHECK-NEXT:    %step.1 = logical.add %step.0, %x {aicf.id = "step.1", aicf.src = ["step"]} : tensor<3xf32>
// CHECK-NEXT:    %then = logical.relu %step.1 {aicf.id = "then", aicf.src = ["then"]} : tensor<3xf32>
// CHECK-NEXT:    func.return %then
onnx.graph @flow opsets {"" = 17} (%x : !onnx.value<f32, [3]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %trips = onnx.constant dense<2> : tensor<i64>
  %on = onnx.constant dense<true> : tensor<i1>
  %last = onnx.node "Loop" "loop"(%trips, %on, %x) bodies {body = {
  ^bb0(%i : !onnx.value, %go : !onnx.value, %v : !onnx.value):
    %next = onnx.node "Add" "step"(%v, %x) : (!onnx.value, !onnx.value<f32, [3]>) -> !onnx.value
    onnx.yield %go, %next : !onnx.value, !onnx.value
  }} : (!onnx.value<i64, []>, !onnx.value<i1, []>, !onnx.value<f32, [3]>) -> !onnx.value
  %y = onnx.node "If" "choice"(%on) bodies {then_branch = {
    %a = onnx.node "Relu" "then"(%last) : (!onnx.value) -> !onnx.value
    onnx.yield %a : !onnx.value
  }, else_branch = {
    onnx.yield %last : !onnx.value
  }} : (!onnx.value<i1, []>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// What is empty is known, and no op reads it.
// CHECK-LABEL: func.func @empty(%x: tensor<2x3xf32> {{.*}}, %past: tensor<0x3xf32> {logical.name = "past", logical.role = "input"})
// CHECK-NEXT:    func.return %x : tensor<2x3xf32>
onnx.graph @empty opsets {"" = 17} (%x : !onnx.value<f32, [2, 3]> {logical.name = "x", logical.role = "input"}, %past : !onnx.value<f32, [0, 3]> {logical.name = "past", logical.role = "input"}) -> ["y"] {
  %r = onnx.node "Relu" "r"(%past) : (!onnx.value<f32, [0, 3]>) -> !onnx.value
  %y = onnx.node "Concat" "y"(%r, %x) {axis = 0 : i64} : (!onnx.value, !onnx.value<f32, [2, 3]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// A constant with a name is a parameter where it is computed with, also after what is computed of it alone; sizes that
// follow from it are known. One that is read for its elements alone leaves nothing behind.
// CHECK-LABEL: func.func @weights(%x: tensor<2x3xf32> {logical.name = "x", logical.role = "input"}, %w: tensor<3xf32> {logical.name = "w", logical.role = "param"})
// CHECK-NEXT:    %neg = logical.neg %w
// CHECK-NEXT:    %sum.broadcast = logical.broadcast %neg
// CHECK-NEXT:    %sum = logical.add %x, %sum.broadcast
// CHECK:         func.return
onnx.graph @weights opsets {"" = 18} (%x : !onnx.value<f32, [2, 3]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %w = onnx.constant "w" dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %f = onnx.constant "factors" dense<[1.0, 2.0]> : tensor<2xf32>
  %none = onnx.none
  %n = onnx.node "Neg" "neg"(%w) : (!onnx.value<f32, [3]>) -> !onnx.value
  %a = onnx.node "Add" "sum"(%x, %n) : (!onnx.value<f32, [2, 3]>, !onnx.value) -> !onnx.value
  %y = onnx.node "Resize" "resize"(%a, %none, %f) {mode = "nearest"} : (!onnx.value, !onnx.value, !onnx.value<f32, [2]>) -> !onnx.value<f32, [2, 6]>
  onnx.yield %y : !onnx.value<f32, [2, 6]>
}
