// RUN: aicf-opt %s | aicf-opt | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// A graph names its inputs and parameters, which have roles, and its results.
// CHECK-LABEL: onnx.graph @linear opsets {"" = 17, "own" = 2} (%x : !onnx.value<f32, ["batch", 4]> {logical.name = "x", logical.role = "input"}, %w : !onnx.value<f32, [4, 300]> {logical.name = "w", logical.role = "param"}) -> ["y"] {
// CHECK-NEXT:    %y = onnx.node "MatMul" "fc"(%x, %w) : (!onnx.value<f32, ["batch", 4]>, !onnx.value<f32, [4, 300]>) -> !onnx.value
// CHECK-NEXT:    onnx.yield %y : !onnx.value
onnx.graph @linear opsets {"" = 17, "own" = 2} (%x : !onnx.value<f32, ["batch", 4]> {logical.name = "x", logical.role = "input"}, %w : !onnx.value<f32, [4, 300]> {logical.name = "w", logical.role = "param"}) -> ["y"] {
  %y = onnx.node "MatMul" "fc"(%x, %w) : (!onnx.value<f32, ["batch", 4]>, !onnx.value<f32, [4, 300]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// Small tensors may be empty; sizes may be arithmetic on names.
// CHECK-LABEL: onnx.graph @constants
// CHECK-SAME:    %x : !onnx.value<bf16, ["2*n + 1", 0]>
// CHECK:         onnx.constant dense<[-1, 2]> : tensor<2xi64>
// CHECK-NEXT:    onnx.constant dense<[]> : tensor<0x3xf32>
// CHECK-NEXT:    onnx.constant dense<2.500000e+00> : tensor<3xf32>
// CHECK-NEXT:    onnx.constant dense<true> : tensor<i1>
onnx.graph @constants opsets {"" = 17} (%x : !onnx.value<bf16, ["2*n + 1", 0]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %0 = onnx.constant dense<[-1, 2]> : tensor<2xi64>
  %1 = onnx.constant dense<[]> : tensor<0x3xf32>
  %2 = onnx.constant dense<2.5> : tensor<3xf32>
  %3 = onnx.constant dense<true> : tensor<i1>
  onnx.yield %x : !onnx.value<bf16, ["2*n + 1", 0]>
}

// A node has attributes of all kinds, an operand that is absent, and a domain and an opset where they are not the graph's.
// CHECK-LABEL: onnx.graph @attributes
// CHECK:         %0 = onnx.none
// CHECK-NEXT:    %a, %b = onnx.node "Op" "a/b:c" domain "com.example" opset 3(%x, %0) {i = 4 : i64, f = 5.000000e-01 : f32, s = "text", is = array<i64: 1, 2>, fs = array<f32: 1.500000e+00>, ss = ["a", "b"], t = dense<[1, 2]> : tensor<2xi64>} attributes {aicf.id = "a/b:c"} : (!onnx.value<f32, [2]>, !onnx.value) -> (!onnx.value, !onnx.value)
onnx.graph @attributes opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["a"] {
  %0 = onnx.none
  %a, %b = onnx.node "Op" "a/b:c" domain "com.example" opset 3(%x, %0) {i = 4 : i64, f = 0.5 : f32, s = "text", is = array<i64: 1, 2>, fs = array<f32: 1.5>, ss = ["a", "b"], t = dense<[1, 2]> : tensor<2xi64>} attributes {aicf.id = "a/b:c"} : (!onnx.value<f32, [2]>, !onnx.value) -> (!onnx.value, !onnx.value)
  onnx.yield %a : !onnx.value
}

// Graphs among the attributes are regions, which read the values around them.
// CHECK-LABEL: onnx.graph @bodies
// CHECK:         %y = onnx.node "If" "choice"(%c) bodies {then_branch = {
// CHECK-NEXT:      %a = onnx.node "Relu"(%x) : (!onnx.value<f32, [2]>) -> !onnx.value
// CHECK-NEXT:      onnx.yield %a : !onnx.value
// CHECK-NEXT:    }, else_branch = {
// CHECK-NEXT:      onnx.yield %x : !onnx.value<f32, [2]>
// CHECK-NEXT:    }} : (!onnx.value<i1, []>) -> !onnx.value
// CHECK:         %z = onnx.node "Loop"(%y) bodies {body = {
// CHECK-NEXT:    ^{{.*}}(%i: !onnx.value, %v: !onnx.value):
// CHECK-NEXT:      onnx.yield %i, %v : !onnx.value, !onnx.value
onnx.graph @bodies opsets {"" = 17} (%c : !onnx.value<i1, []> {logical.name = "c", logical.role = "input"}, %x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %y = onnx.node "If" "choice"(%c) bodies {then_branch = {
    %a = onnx.node "Relu"(%x) : (!onnx.value<f32, [2]>) -> !onnx.value
    onnx.yield %a : !onnx.value
  }, else_branch = {
    onnx.yield %x : !onnx.value<f32, [2]>
  }} : (!onnx.value<i1, []>) -> !onnx.value
  %z = onnx.node "Loop"(%y) bodies {body = {
  ^bb0(%i : !onnx.value, %v : !onnx.value):
    onnx.yield %i, %v : !onnx.value, !onnx.value
  }} : (!onnx.value) -> !onnx.value
  onnx.yield %y : !onnx.value
}

// A small weight that may be trained has a name.
// CHECK-LABEL: onnx.graph @weight
// CHECK:         %0 = onnx.constant "fc1.bias" dense<2.500000e+00> {aicf.id = "bias"} : tensor<3xf32>
onnx.graph @weight opsets {"" = 17} () -> ["y"] {
  %0 = onnx.constant "fc1.bias" dense<2.5> {aicf.id = "bias"} : tensor<3xf32>
  onnx.yield %0 : !onnx.value<f32, [3]>
}

// What a node gives has the type that the model declares, all of it or a part.
// CHECK-LABEL: onnx.graph @declared
// CHECK:         %a, %b, %c = onnx.node "Op" "n"(%x) : (!onnx.value<f32, [2]>) -> (!onnx.value<f32, [2, 3]>, !onnx.value<i64, [?, 3]>, !onnx.value<f16>)
// CHECK-NEXT:    onnx.yield %b : !onnx.value<i64, [?, 3]>
onnx.graph @declared opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["b"] {
  %a, %b, %c = onnx.node "Op" "n"(%x) : (!onnx.value<f32, [2]>) -> (!onnx.value<f32, [2, 3]>, !onnx.value<i64, [?, 3]>, !onnx.value<f16>)
  onnx.yield %b : !onnx.value<i64, [?, 3]>
}
