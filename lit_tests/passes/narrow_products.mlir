// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,narrow-products,logical-dce' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,narrow-products,logical-dce' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{rounding: strict}"},assign-ids,narrow-products,logical-dce' | filecheck %s --check-prefix=STRICT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{determinism: batch_invariant}"},assign-ids,narrow-products,logical-dce' | filecheck %s --check-prefix=BATCH
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{groups: [[c], [t.integers]]}"},assign-ids,narrow-products,logical-dce' | filecheck %s --check-prefix=LISTED
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=FINAL

// STRICT-COUNT-6: emit.decision "narrow-products" {{.*}}choice "in f32" because "sums of integers round differently from f32 sums, and the policy wants strict rounding (rounding)"
// STRICT-NOT: widening
// BATCH-COUNT-6: choice "in f32" because "which of the two is faster depends on the batch, and results may not (determinism)"
// BATCH-NOT: widening
// CUDA: emit.decision "narrow-products" ["c"] choice "of integers: u8 and i8" because "predicted {{.*}} us as a product of integers and {{.*}} us in f32"
// CUDA: emit.decision "narrow-products" ["m"] choice "of integers: u8 and i8" because "predicted {{.*}} us as a product of integers and {{.*}} us in f32"
// CUDA: emit.decision "narrow-products" ["g"] choice "of integers: i8 and i8"
// CHECK: emit.decision "narrow-products" ["c"] choice "of integers: u8 and i8" because "predicted {{.*}} us as a product of integers and {{.*}} us in f32" cost {narrow_us = {{.*}}, wide_us = {{.*}}}
// CHECK: emit.decision "narrow-products" ["m"] choice "of integers: u8 and i8"
// CHECK: emit.decision "narrow-products" ["g"] choice "of integers: i8 and i8"
// CHECK: emit.decision "narrow-products" ["t"] choice "in f32" because "predicted {{.*}} us as a product of integers and {{.*}} us in f32"
// CHECK: emit.decision "narrow-products" ["long"] choice "in f32" because "a sum of 70000 products may reach {{[0-9]+}}, which i32 does not hold: split the sum"
// CHECK: emit.decision "narrow-products" ["k"] choice "in f32" because "a scale is neither per tensor nor per row, column or output channel"
// LISTED: emit.decision "narrow-products" ["c"] choice "in f32" because "the policy lists it so"
// LISTED: emit.decision "narrow-products" ["t"] choice "of integers: u8 and i8" because "the policy lists it so"

// A convolution with a scale for each output channel, bias and relu: the zero point lies around the input, and what it
// adds to each sum, which follows from the weight alone, is taken off. So does the product of the scales.
// CHECK-LABEL: func.func @conv
// CHECK: %c.integers = logical.conv %x, %w {strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1, widening, padding_value = 128,
// CHECK: %c.integers.centred.excess.sums = logical.reduce_sum %c.integers.centred.excess.i32 {axes = [1, 2, 3],
// CHECK: %c.integers.centred.excess = logical.mul %c.integers.centred.excess.sums, %c.integers.centred.excess.zero_point
// CHECK: %c.integers.centred = logical.sub %c.integers, %c.integers.centred.broadcast
// CHECK-NEXT: %c.integers.f32 = logical.cast %c.integers.centred
// CHECK-NEXT: %c.scale.factor = logical.constant dense<2.000000e-02> {{.*}} : tensor<64xf32>
// CHECK-NEXT: %c.scale = logical.mul %ws, %c.scale.factor
// CHECK-NEXT: %c.scale.broadcast = logical.broadcast %c.scale {dimensions = [1]
// CHECK-NEXT: %c = logical.mul %c.integers.f32, %c.scale.broadcast
// CHECK: logical.add %c, %bias
// FINAL: emit.program @conv
// FINAL: emit.resolved "conv" {{.*}} src(["c", "a", "y"])
// FINAL-NEXT: {{.*}}!emit.buffer<64x64x3x3xi8, const, layout #emit.layout<"packed_b", {{{.*}}pairs = 9 : i64
func.func @conv(%x : tensor<1x64x28x28xui8> {logical.name = "x", logical.role = "input"}, %w : tensor<64x64x3x3xi8> {logical.name = "conv.w", logical.role = "param"}, %ws : tensor<64xf32> {logical.name = "conv.ws", logical.role = "param"}, %b : tensor<64xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<1x64x14x14xf32> {logical.name = "y"}) {
  %x32 = logical.cast %x : tensor<1x64x28x28xui8> -> tensor<1x64x28x28xi32>
  %xz = logical.constant dense<128> : tensor<1x64x28x28xi32>
  %xc = logical.sub %x32, %xz : tensor<1x64x28x28xi32>
  %xf = logical.cast %xc : tensor<1x64x28x28xi32> -> tensor<1x64x28x28xf32>
  %sx = logical.constant dense<0.02> : tensor<1x64x28x28xf32>
  %xd = logical.mul %xf, %sx : tensor<1x64x28x28xf32>
  %wf = logical.cast %w : tensor<64x64x3x3xi8> -> tensor<64x64x3x3xf32>
  %sw = logical.broadcast %ws {dimensions = [0]} : tensor<64xf32> -> tensor<64x64x3x3xf32>
  %wd = logical.mul %wf, %sw : tensor<64x64x3x3xf32>
  %c = logical.conv %xd, %wd {strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x14x14xf32>
  %bias = logical.broadcast %b {dimensions = [1]} : tensor<64xf32> -> tensor<1x64x14x14xf32>
  %a = logical.add %c, %bias : tensor<1x64x14x14xf32>
  %y = logical.relu %a : tensor<1x64x14x14xf32>
  func.return %y : tensor<1x64x14x14xf32>
}

// A product of an asymmetric activation; its dequantised values are a result too, and stay. Two constant scales are one.
// CHECK-LABEL: func.func @asymmetric
// CHECK: %xd = logical.mul
// CHECK: %m.integers = logical.matmul %x, %w {widening, aicf.id = "m.integers", aicf.src = ["m"]} : (tensor<32x256xui8>, tensor<256x512xi8>) -> tensor<32x512xi32>
// CHECK: %m.integers.centred = logical.sub %m.integers, %m.integers.centred.broadcast
// CHECK-NEXT: %m.integers.f32 = logical.cast %m.integers.centred
// CHECK-NEXT: %m.scale = logical.constant dense<5.000000e-01> {{.*}} : tensor<32x512xf32>
// CHECK-NEXT: %m = logical.mul %m.integers.f32, %m.scale
// CHECK-NEXT: func.return %m, %xd
func.func @asymmetric(%x : tensor<32x256xui8> {logical.name = "x", logical.role = "input"}, %w : tensor<256x512xi8> {logical.name = "asymmetric.w", logical.role = "param"}) -> (tensor<32x512xf32> {logical.name = "y"}, tensor<32x256xf32> {logical.name = "z"}) {
  %x32 = logical.cast %x : tensor<32x256xui8> -> tensor<32x256xi32>
  %xz = logical.constant dense<117> : tensor<32x256xi32>
  %xc = logical.sub %x32, %xz : tensor<32x256xi32>
  %xf = logical.cast %xc : tensor<32x256xi32> -> tensor<32x256xf32>
  %sx = logical.constant dense<0.25> : tensor<32x256xf32>
  %xd = logical.mul %xf, %sx : tensor<32x256xf32>
  %wf = logical.cast %w : tensor<256x512xi8> -> tensor<256x512xf32>
  %sw = logical.constant dense<2.0> : tensor<256x512xf32>
  %wd = logical.mul %wf, %sw : tensor<256x512xf32>
  %m = logical.matmul %xd, %wd : (tensor<32x256xf32>, tensor<256x512xf32>) -> tensor<32x512xf32>
  func.return %m, %xd : tensor<32x512xf32>, tensor<32x256xf32>
}

// A transposed weight has its scales along the rows, and its zero points of 0 go.
// CHECK-LABEL: func.func @transposed
// CHECK: %g.integers = logical.matmul %x, %w {transpose_b, widening
// CHECK: %g.scale = logical.mul %ws, %g.scale.factor
// CHECK: %g.scale.broadcast = logical.broadcast %g.scale {dimensions = [1]
// CHECK: func.return %g
func.func @transposed(%x : tensor<32x256xi8> {logical.name = "x", logical.role = "input"}, %w : tensor<512x256xi8> {logical.name = "transposed.w", logical.role = "param"}, %ws : tensor<512xf32> {logical.name = "transposed.ws", logical.role = "param"}) -> (tensor<32x512xf32> {logical.name = "y"}) {
  %xf = logical.cast %x : tensor<32x256xi8> -> tensor<32x256xf32>
  %sx = logical.constant dense<0.25> : tensor<32x256xf32>
  %xd = logical.mul %sx, %xf : tensor<32x256xf32>
  %w32 = logical.cast %w : tensor<512x256xi8> -> tensor<512x256xi32>
  %wz = logical.constant dense<0> : tensor<512x256xi32>
  %wc = logical.sub %w32, %wz : tensor<512x256xi32>
  %wf = logical.cast %wc : tensor<512x256xi32> -> tensor<512x256xf32>
  %sw = logical.broadcast %ws {dimensions = [0]} : tensor<512xf32> -> tensor<512x256xf32>
  %wd = logical.mul %wf, %sw : tensor<512x256xf32>
  %g = logical.matmul %xd, %wd {transpose_b} : (tensor<32x256xf32>, tensor<512x256xf32>) -> tensor<32x512xf32>
  func.return %g : tensor<32x512xf32>
}

// Winograd's sums of f32 take less.
// CHECK-LABEL: func.func @three_by_three
// CHECK: %t = logical.conv %xd, %wd
func.func @three_by_three(%x : tensor<1x64x28x28xui8> {logical.name = "x", logical.role = "input"}, %w : tensor<64x64x3x3xi8> {logical.name = "three_by_three.w", logical.role = "param"}) -> (tensor<1x64x28x28xf32> {logical.name = "y"}) {
  %xf = logical.cast %x : tensor<1x64x28x28xui8> -> tensor<1x64x28x28xf32>
  %sx = logical.constant dense<0.02> : tensor<1x64x28x28xf32>
  %xd = logical.mul %xf, %sx : tensor<1x64x28x28xf32>
  %wf = logical.cast %w : tensor<64x64x3x3xi8> -> tensor<64x64x3x3xf32>
  %sw = logical.constant dense<0.01> : tensor<64x64x3x3xf32>
  %wd = logical.mul %wf, %sw : tensor<64x64x3x3xf32>
  %t = logical.conv %xd, %wd {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32>
  func.return %t : tensor<1x64x28x28xf32>
}

// Sums that may leave i32, and scales along what is added up, stay in f32. A product of one dequantised tensor is none of
// both, and nothing is said of it.
// CHECK-LABEL: func.func @refused
// CHECK-NOT: widening
func.func @refused(%x : tensor<4x70000xui8> {logical.name = "x", logical.role = "input"}, %w : tensor<70000x8xi8> {logical.name = "refused.w", logical.role = "param"}, %s : tensor<4xf32> {logical.name = "refused.s", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}, tensor<8x8xf32> {logical.name = "z"}, tensor<4x8xf32> {logical.name = "v"}) {
  %xf = logical.cast %x : tensor<4x70000xui8> -> tensor<4x70000xf32>
  %sx = logical.constant dense<0.02> : tensor<4x70000xf32>
  %xd = logical.mul %xf, %sx : tensor<4x70000xf32>
  %wf = logical.cast %w : tensor<70000x8xi8> -> tensor<70000x8xf32>
  %sw = logical.constant dense<0.01> : tensor<70000x8xf32>
  %wd = logical.mul %wf, %sw : tensor<70000x8xf32>
  %long = logical.matmul %xd, %wd : (tensor<4x70000xf32>, tensor<70000x8xf32>) -> tensor<4x8xf32>
  %v4 = logical.slice %w {starts = [0, 0], sizes = [8, 4], strides = [1, 1]} : tensor<70000x8xi8> -> tensor<8x4xi8>
  %v = logical.slice %w {starts = [0, 0], sizes = [4, 8], strides = [1, 1]} : tensor<70000x8xi8> -> tensor<4x8xi8>
  %kf = logical.cast %v4 : tensor<8x4xi8> -> tensor<8x4xf32>
  %sk = logical.broadcast %s {dimensions = [1]} : tensor<4xf32> -> tensor<8x4xf32>
  %kd = logical.mul %kf, %sk : tensor<8x4xf32>
  %vf = logical.cast %v : tensor<4x8xi8> -> tensor<4x8xf32>
  %sv = logical.constant dense<0.01> : tensor<4x8xf32>
  %vd = logical.mul %vf, %sv : tensor<4x8xf32>
  %k = logical.matmul %kd, %vd : (tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %one = logical.matmul %xf, %wd : (tensor<4x70000xf32>, tensor<70000x8xf32>) -> tensor<4x8xf32>
  func.return %long, %k, %one : tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>
}
