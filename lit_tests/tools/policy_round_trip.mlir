// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' > %t.first.mlir
// RUN: filecheck %s --check-prefix=BLOCK < %t.first.mlir
// RUN: aicf policy extract %t.first.mlir -o %t.yaml | filecheck %s --check-prefix=EXTRACT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="%t.yaml"}' > %t.again.mlir
// RUN: aicf diff %t.first.mlir %t.again.mlir | filecheck %s --check-prefix=SAME
// RUN: sed -e 's/^    attention: cpu.attention_avx2$/    attention: cpu.attention_portable/' -e '/^    attention:$/,/expected_us/d' %t.yaml > %t.edited.yaml
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="%t.edited.yaml"}' > %t.edited.mlir
// RUN: not aicf diff %t.first.mlir %t.edited.mlir | filecheck %s --check-prefix=EDITED

// A transformer encoder block, 128 tokens of width 256 in 4 heads, is 6 instructions.
// BLOCK: emit.program @encoder attributes {phase = "final", {{.*}}graphs = {{\[\[}}"norm1", "query", "attention", "out", "up", "down"]]}

// Its decisions are a policy. Applied to the same program they give the same again.
// EXTRACT: yaml: 6 kernels of
// SAME: the same decisions, 12 instructions

// With another kernel for attention that is the one difference, and the exit status is 1: the entries of its record, and
// what they add up to.
// EDITED: first.mlir -> {{.*}}edited.mlir
// EDITED-EMPTY:
// EDITED-NEXT: @encoder
// EDITED-NEXT: kernel of attention: cpu.attention_avx2 -> cpu.attention_portable
// EDITED-NEXT: scores.lanes: 8 -> 4
// EDITED-NEXT: scores.tile_rows: 6 -> 4
// EDITED-NEXT: scores.tile_vectors: 2 -> 3
// EDITED-NEXT: output.lanes: 8 -> 4
// EDITED-NEXT: workspace_bytes: {{[0-9]+}} -> {{[0-9]+}}
// EDITED-NEXT: combination_order: scores ascending k;
// EDITED-NEXT: -> scores ascending k;
// EDITED-NEXT: predicted us: {{[0-9.]+}} -> {{[0-9.]+}}
// EDITED-NOT: {{.}}
func.func @encoder(
    %x : tensor<128x256xf32> {logical.name = "x", logical.role = "input"},
    %norm1.weight : tensor<256xf32> {logical.name = "norm1.weight", logical.role = "param"},
    %norm1.bias : tensor<256xf32> {logical.name = "norm1.bias", logical.role = "param"},
    %query.weight : tensor<256x256xf32> {logical.name = "query.weight", logical.role = "param"},
    %query.bias : tensor<256xf32> {logical.name = "query.bias", logical.role = "param"},
    %key.weight : tensor<256x256xf32> {logical.name = "key.weight", logical.role = "param"},
    %key.bias : tensor<256xf32> {logical.name = "key.bias", logical.role = "param"},
    %value.weight : tensor<256x256xf32> {logical.name = "value.weight", logical.role = "param"},
    %value.bias : tensor<256xf32> {logical.name = "value.bias", logical.role = "param"},
    %out.weight : tensor<256x256xf32> {logical.name = "out.weight", logical.role = "param"},
    %out.bias : tensor<256xf32> {logical.name = "out.bias", logical.role = "param"},
    %norm2.weight : tensor<256xf32> {logical.name = "norm2.weight", logical.role = "param"},
    %norm2.bias : tensor<256xf32> {logical.name = "norm2.bias", logical.role = "param"},
    %up.weight : tensor<1024x256xf32> {logical.name = "up.weight", logical.role = "param"},
    %up.bias : tensor<1024xf32> {logical.name = "up.bias", logical.role = "param"},
    %down.weight : tensor<256x1024xf32> {logical.name = "down.weight", logical.role = "param"},
    %down.bias : tensor<256xf32> {logical.name = "down.bias", logical.role = "param"})
    -> (tensor<128x256xf32> {logical.name = "y"}) {
  %norm1 = logical.layer_norm %x, %norm1.weight, %norm1.bias {axis = 1, epsilon = 1.0e-5 : f64} : (tensor<128x256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %query = logical.linear %norm1, %query.weight, %query.bias : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %0 = logical.reshape %query : tensor<128x256xf32> -> tensor<128x4x64xf32>
  %1 = logical.transpose %0 {permutation = [1, 0, 2]} : tensor<128x4x64xf32> -> tensor<4x128x64xf32>
  %key = logical.linear %norm1, %key.weight, %key.bias : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %2 = logical.reshape %key : tensor<128x256xf32> -> tensor<128x4x64xf32>
  %3 = logical.transpose %2 {permutation = [1, 0, 2]} : tensor<128x4x64xf32> -> tensor<4x128x64xf32>
  %value = logical.linear %norm1, %value.weight, %value.bias : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %4 = logical.reshape %value : tensor<128x256xf32> -> tensor<128x4x64xf32>
  %5 = logical.transpose %4 {permutation = [1, 0, 2]} : tensor<128x4x64xf32> -> tensor<4x128x64xf32>
  %attention = logical.attention %1, %3, %5 {past = 0} : (tensor<4x128x64xf32>, tensor<4x128x64xf32>, tensor<4x128x64xf32>) -> tensor<4x128x64xf32>
  %6 = logical.transpose %attention {permutation = [1, 0, 2]} : tensor<4x128x64xf32> -> tensor<128x4x64xf32>
  %7 = logical.reshape %6 : tensor<128x4x64xf32> -> tensor<128x256xf32>
  %out = logical.linear %7, %out.weight, %out.bias : (tensor<128x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %mid = logical.add %x, %out : tensor<128x256xf32>
  %norm2 = logical.layer_norm %mid, %norm2.weight, %norm2.bias {axis = 1, epsilon = 1.0e-5 : f64} : (tensor<128x256xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %up = logical.linear %norm2, %up.weight, %up.bias : (tensor<128x256xf32>, tensor<1024x256xf32>, tensor<1024xf32>) -> tensor<128x1024xf32>
  %act = logical.gelu %up {approximate = "none"} : tensor<128x1024xf32>
  %down = logical.linear %act, %down.weight, %down.bias : (tensor<128x1024xf32>, tensor<256x1024xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %y = logical.add %mid, %down : tensor<128x256xf32>
  func.return %y : tensor<128x256xf32>
}
