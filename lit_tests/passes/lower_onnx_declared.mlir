// RUN: aicf-opt %s -p lower-onnx --split-input-file | filecheck %s
// RUN: aicf-opt %s -p 'lower-onnx{strict=true}' --split-input-file --verify-diagnostics | filecheck %s --check-prefix=STRICT

// What a node gives holds, whatever the model declares of it; the ledger says what is wrong.
// CHECK:      emit.decision "lower-onnx" ["r"] choice "the inferred type holds" because "Relu 'r': output 0 ('y') is 2x3xf32, the model declares ?x4xf32"
// CHECK:      func.func @f
// CHECK:      logical.relu %a {{.*}} : tensor<2x3xf32>
// STRICT: error: wrong declaration: Relu 'r': output 0 ('y') is 2x3xf32, the model declares ?x4xf32; correct it, take it out of the model, or compile without strict
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, [2, 3]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
  %a = onnx.node "Abs" "a"(%x) : (!onnx.value<f32, [2, 3]>) -> !onnx.value<f32>
  %y = onnx.node "Relu" "r"(%a) : (!onnx.value<f32>) -> !onnx.value<f32, [?, 4]>
  onnx.yield %y : !onnx.value<f32, [?, 4]>
}

// -----

// What was found while the model was read is among the attributes of the graph.
// CHECK:      emit.decision "lower-onnx" ["g"] choice "the inferred type holds" because "value 'c' is 4xf32, the model declares 5xf32"
// STRICT: error: wrong declaration: value 'c' is 4xf32, the model declares 5xf32; correct it
onnx.graph @g opsets {"" = 17} (%x : !onnx.value<f32, [2]> {logical.name = "x", logical.role = "input"}) -> ["y"] attributes {onnx.contradictions = ["value 'c' is 4xf32, the model declares 5xf32"]} {
  %y = onnx.node "Relu" "r"(%x) : (!onnx.value<f32, [2]>) -> !onnx.value
  onnx.yield %y : !onnx.value
}
