// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// Every graph ends in a yield of as many values as it names.
// CHECK: error: onnx.graph @f: it yields 0 values and names 1
onnx.graph @f opsets {"" = 17} () -> ["y"] {
  onnx.yield
}

// -----

// CHECK: error: onnx.graph @f must end with onnx.yield
onnx.graph @f opsets {"" = 17} () -> [] {
  emit.yield
}

// -----

// CHECK: error: onnx.graph @f: the opset of domain "own" is "two"; it is an integer
onnx.graph @f opsets {"own" = "two"} () -> [] {
  onnx.yield
}

// -----

// CHECK: error: onnx.graph @f: argument 0 has no name; give it logical.name = "..."
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: onnx.graph @f: the role of argument "x" is "state"; it is input or param
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "state"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: onnx.graph @f: the type of argument "x" is !onnx.value; write !onnx.value<f32, [...]>
onnx.graph @f opsets {"" = 17} (%x : !onnx.value {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: onnx.graph @f: the name "x" is used twice
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}, %y : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: onnx.graph @f: the name "y" is used twice
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y", "y"] {
  onnx.yield %x, %x : !onnx.value<f32, [2]>, !onnx.value<f32, [2]>
}

// -----

// A graph sees nothing of what is around it.
// CHECK: error: {{.*}}%x is used
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}
onnx.graph @g opsets {"" = 17} () -> ["y"] {
  onnx.yield %x : !onnx.value<f32, [2]>
}

// -----

// CHECK: error: {{.*}}element type i7 is not supported; use one of
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<i7, [2]> {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: {{.*}}!onnx.value: size -2 is negative; name a size that is not known
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [-2]> {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: {{.*}}'n/2' is no dimension size
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, ["n/2"]> {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: {{.*}}!onnx.value: write '4' in normal form: 4
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, ["4"]> {logical.name = "x", logical.role = "input"}) -> [] {
  onnx.yield
}

// -----

// CHECK: error: onnx.constant: 1.5 is no i64
onnx.graph @f opsets {"" = 17} () -> [] {
  %0 = onnx.constant dense<1.5> : tensor<2xi64>
  onnx.yield
}

// -----

// CHECK: error: onnx.constant: tensor<0xi64> is empty; write dense<[]>
onnx.graph @f opsets {"" = 17} () -> [] {
  %0 = onnx.constant dense<1> : tensor<0xi64>
  onnx.yield
}

// -----

// CHECK: error: onnx.constant: i64 is not a ranked tensor type
onnx.graph @f opsets {"" = 17} () -> [] {
  %0 = onnx.constant dense<1> : i64
  onnx.yield
}

// -----

// CHECK: error: {{.*}}tensor<?xi64>: the sizes of a constant are numbers
onnx.graph @f opsets {"" = 17} () -> [] {
  %0 = onnx.constant dense<1> : tensor<?xi64>
  onnx.yield
}

// -----

// CHECK: error: onnx.constant: the value is !onnx.value<i64, []>, the result !onnx.value<f32, []>
onnx.graph @f opsets {"" = 17} () -> [] {
  %0 = "onnx.constant"() <{value = dense<1> : tensor<i64>}> : () -> !onnx.value<f32, []>
  onnx.yield
}

// -----

// CHECK: error: onnx.none: its type is !onnx.value, not !onnx.value<f32, []>
onnx.graph @f opsets {"" = 17} () -> [] {
  %0 = "onnx.none"() : () -> !onnx.value<f32, []>
  onnx.yield
}

// -----

// CHECK: error: onnx.node "If": the attribute then_branch is given twice
onnx.graph @f opsets {"" = 17} (%c : !onnx.value<i1, []> {logical.name = "c", logical.role = "input"}) -> [] {
  onnx.node "If"(%c) {then_branch = 1 : i64} bodies {then_branch = {
    onnx.yield
  }} : (!onnx.value<i1, []>) -> ()
  onnx.yield
}

// -----

// CHECK: error: onnx.node "If": graph then_branch must end with onnx.yield
onnx.graph @f opsets {"" = 17} (%c : !onnx.value<i1, []> {logical.name = "c", logical.role = "input"}) -> [] {
  onnx.node "If"(%c) bodies {then_branch = {
    emit.yield
  }} : (!onnx.value<i1, []>) -> ()
  onnx.yield
}

// -----

// CHECK: error: onnx.node "Loop": the inputs of graph body are of type !onnx.value
onnx.graph @f opsets {"" = 17} (%c : !onnx.value<i1, []> {logical.name = "c", logical.role = "input"}) -> [] {
  onnx.node "Loop"(%c) bodies {body = {
  ^bb0(%i : tensor<i64>):
    onnx.yield
  }} : (!onnx.value<i1, []>) -> ()
  onnx.yield
}
