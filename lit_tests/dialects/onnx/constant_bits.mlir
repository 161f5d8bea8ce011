// RUN: aicf-opt %s | aicf-opt | filecheck %s

// What is no finite number keeps its bits.
// CHECK: onnx.constant dense<[0x7fc00001, 0xff800000]> : tensor<2xf32>
onnx.graph @constants opsets {"" = 17} () -> ["y"] {
  %y = onnx.constant dense<[0x7fc00001, 0xff800000]> : tensor<2xf32>
  onnx.yield %y : !onnx.value<f32, [2]>
}
