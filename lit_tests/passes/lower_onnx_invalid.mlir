// RUN: aicf-opt %s -p lower-onnx --split-input-file --verify-diagnostics | filecheck %s

// CHECK: error: onnx.graph: argument "x" is nxf32, with symbolic sizes; run specialize-shapes first
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, ["n"]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  onnx.yield %x : !onnx.value<f32, ["n"]>
}

// -----

// CHECK: error: op 'Foo' of domain 'ai.onnx' opset 17 is not supported (node 'n'); replace it by ops of docs/onnx-support.md
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "Foo" "n"(%x) : (!onnx.value<f32, [2]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: Relu 'n': the graph has no opset of domain 'own'
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "Relu" "n" domain "own"(%x) : (!onnx.value<f32, [2]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: Add 'sum': shapes 2 and 3 do not broadcast; sizes are equal or 1 from the right
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}, %z : !onnx.value<f32, [3]> {logical.name = "z", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "Add" "sum"(%x, %z) : (!onnx.value<f32, [2]>, !onnx.value<f32, [3]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: Relu 'r': operand 0 is missing; the op needs it
onnx.graph @f opsets {"" = 17} () -> ["y"] {
  %0 = onnx.none
  %y = onnx.node "Relu" "r"(%0) : (!onnx.value) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: Softmax 'soft': attribute axis is "last"; it is an integer
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "Softmax" "soft"(%x) {axis = "last"} : (!onnx.value<f32, [2]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: Reshape 'flat': shape (operand 1) follows from input 's' at run time, and which ops there are depends on it; make it a constant of the model, or bind the input: values={'s': ...} (--values)
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}, %s : !onnx.value<i64, [1]> {logical.name = "s", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "Reshape" "flat"(%x, %s) : (!onnx.value<f32, [2]>, !onnx.value<i64, [1]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: If 'choice': attribute then_branch is missing; it is a graph
onnx.graph @f opsets {"" = 17} () -> ["y"] {
  %on = onnx.constant dense<true> : tensor<i1>
  %y = onnx.node "If" "choice"(%on) : (!onnx.value<i1, []>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: result 'y' is a sequence; a program gives tensors: take it apart in the model
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "SequenceConstruct" "s"(%x) : (!onnx.value<f32, [2]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// -----

// CHECK: error: Relu 'r': it has 2 outputs, of which 1 are supported
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y", "z"] {
  %y, %z = onnx.node "Relu" "r"(%x) : (!onnx.value<f32, [2]>) -> (!onnx.value, !onnx.value)
  onnx.yield %y, %z : !onnx.value, !onnx.value
}
