// RUN: aicf-opt %s -p 'assign-ids,specialize-shapes{dims="n=0,4" values="{\"shape\": [2, -1], \"scale\": 0.5}"}' | filecheck %s
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="n=1;rank=3" values="{\"shape\": [2, -1]}"}' 2>&1 | filecheck %s --check-prefix=SETTLED
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="n=1" values="{\"form\": 1}"}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="n=1" values="{\"shape\": 1}"}' 2>&1 | filecheck %s --check-prefix=RANK
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="n=1" values="{"}' 2>&1 | filecheck %s --check-prefix=SYNTAX
// RUN: not aicf-opt %s -p 'specialize-shapes{dims="m=1"}' 2>&1 | filecheck %s --check-prefix=UNBOUND

// SETTLED: dims: the values settle that rank is 2; leave it out of the sizes
// UNKNOWN: values: there is no input 'form' to bind; inputs are: x, shape, scale
// RANK: values: shape has rank 0, the input is rankxi64, of rank 1
// SYNTAX: values: cannot read '{'
// UNBOUND: dims: the program has no symbolic dimension m; its dimensions are: n, rank

// A graph is copied for every size, as a function is; an input with a value is a constant and no input any more.
// CHECK: logical.dispatch @f dims ["n"] {{\[\[}}0] = @"f@n=0", [4] = @"f@n=4"]
// CHECK-NEXT: onnx.graph @"f@n=0" opsets {"" = 17} (%x : !onnx.value<f32, [0, 4]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
// CHECK-DAG:    %shape = onnx.constant dense<[2, -1]> : tensor<2xi64>
// CHECK-DAG:    %scale = onnx.constant dense<5.000000e-01> : tensor<f32>
// CHECK:        onnx.node "Reshape" "to"(%x, %shape) attributes {aicf.id = "to@n=0", aicf.src = ["to"]} : (!onnx.value<f32, [0, 4]>, !onnx.value<i64, [2]>) -> !onnx.value
// CHECK:      onnx.graph @"f@n=4" opsets {"" = 17} (%x : !onnx.value<f32, [4, 8]> {logical.name = "x", logical.role = "input"}) -> ["y"] {
onnx.graph @f opsets {"" = 17} (%x : !onnx.value<f32, ["n", "n + 4"]> {logical.name = "x", logical.role = "input"}, %shape : !onnx.value<i64, ["rank"]> {logical.name = "shape", logical.role = "input"}, %scale : !onnx.value<f32, []> {logical.name = "scale", logical.role = "input"}) -> ["y"] {
  %r = onnx.node "Reshape" "to"(%x, %shape) : (!onnx.value<f32, ["n", "n + 4"]>, !onnx.value<i64, ["rank"]>) -> !onnx.value
  %y = onnx.node "Mul" "scaled"(%r, %scale) : (!onnx.value, !onnx.value<f32, []>) -> !onnx.value
  onnx.yield %y : !onnx.value
}
