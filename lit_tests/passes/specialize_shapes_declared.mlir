// RUN: aicf-opt %s -p 'specialize-shapes{dims="n=4"}' | filecheck %s

// What a model declares of values in terms of the sizes gets the numbers; a size below 0 says nothing.
// CHECK:      onnx.node "Abs" "a"(%x) : (!onnx.value<f32, [4]>) -> !onnx.value<f32, [?, 8]>
// CHECK:      onnx.node "Neg" "inner"(%x) : (!onnx.value<f32, [4]>) -> !onnx.value<f32, [4, 3]>
// CHECK:      -> !onnx.value<f32, [?]>
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, ["n"]> {logical.name = "x", logical.role = "input"}, %on : !onnx.value<i1, []> {logical.name = "on", logical.role = "input"}) -> ["y"] {
  %a = onnx.node "Abs" "a"(%x) : (!onnx.value<f32, ["n"]>) -> !onnx.value<f32, [?, "2*n"]>
  %y = onnx.node "If" "choice"(%on) bodies {then_branch = {
    %b = onnx.node "Neg" "inner"(%x) : (!onnx.value<f32, ["n"]>) -> !onnx.value<f32, ["n", 3]>
    onnx.yield %b : !onnx.value<f32, ["n", 3]>
  }} : (!onnx.value<i1, []>) -> !onnx.value<f32, ["n - 5"]>
  onnx.yield %y : !onnx.value<f32, ["n - 5"]>
}
