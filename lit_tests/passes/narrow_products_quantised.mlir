// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4+avx512vnni"},assign-ids,narrow-products,logical-dce' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4+avx512vnni"}' | filecheck %s --check-prefix=FINAL
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=PLAIN

// What quantises a convolution: its scale and bias are divided by the step, the zero point is part of the bias, and the
// relu goes, since the cast cuts off as much. With avx512vnni units are four channels; without, Winograd's tiles take
// less.
// CHECK-LABEL: func.func @conv
// CHECK: %c.integers = logical.conv %x, %w {{.*}}widening, padding_value = 7,
// CHECK: %c.scale = logical.constant dense<{{.*}}> {{.*}} : tensor<1x64x28x28xf32>
// CHECK-NEXT: %c = logical.mul %c.integers.f32, %c.scale
// CHECK: %a.quotient = logical.div %b, %a.constant
// CHECK: %a.bias = logical.add %a.quotient, %{{.*}}
// CHECK-NEXT: %a.bias.broadcast = logical.broadcast %a.bias {dimensions = [1]
// CHECK-NEXT: %a = logical.add %c, %a.bias.broadcast
// CHECK-NEXT: %n = logical.round %a
// CHECK-NEXT: %q = logical.cast %n {{.*}} -> tensor<1x64x28x28xi8>
// FINAL: emit.program @conv
// FINAL: emit.resolved "conv"
// FINAL-NEXT: layout #emit.layout<"quads_weight"
// FINAL: unit_channels = 4
// PLAIN: emit.program @conv
// PLAIN: emit.resolved "conv"
// PLAIN: algorithm = "winograd"
func.func @conv(%x : tensor<1x64x28x28xui8> {logical.name = "x", logical.role = "input"}, %w : tensor<64x64x3x3xi8> {logical.name = "w", logical.role = "param"}, %b : tensor<64xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<1x64x28x28xi8> {logical.name = "y"}) {
  %x32 = logical.cast %x : tensor<1x64x28x28xui8> -> tensor<1x64x28x28xi32>
  %xz = logical.constant dense<7> : tensor<1x64x28x28xi32>
  %xc = logical.sub %x32, %xz : tensor<1x64x28x28xi32>
  %xf = logical.cast %xc : tensor<1x64x28x28xi32> -> tensor<1x64x28x28xf32>
  %sx = logical.constant dense<0.02> : tensor<1x64x28x28xf32>
  %xd = logical.mul %xf, %sx : tensor<1x64x28x28xf32>
  %wf = logical.cast %w : tensor<64x64x3x3xi8> -> tensor<64x64x3x3xf32>
  %sw = logical.constant dense<0.01> : tensor<64x64x3x3xf32>
  %wd = logical.mul %wf, %sw : tensor<64x64x3x3xf32>
  %c = logical.conv %xd, %wd {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32>
  %bias = logical.broadcast %b {dimensions = [1]} : tensor<64xf32> -> tensor<1x64x28x28xf32>
  %a = logical.add %c, %bias : tensor<1x64x28x28xf32>
  %r = logical.relu %a : tensor<1x64x28x28xf32>
  %s = logical.constant dense<0.05> : tensor<1x64x28x28xf32>
  %d = logical.div %r, %s : tensor<1x64x28x28xf32>
  %n = logical.round %d : tensor<1x64x28x28xf32>
  %z = logical.constant dense<-128.0> : tensor<1x64x28x28xf32>
  %m = logical.add %n, %z : tensor<1x64x28x28xf32>
  %q = logical.cast %m : tensor<1x64x28x28xf32> -> tensor<1x64x28x28xi8>
  func.return %q : tensor<1x64x28x28xi8>
}

// The largest integers are those of the largest elements, and are quantised as they were: nothing is computed of them.
// CHECK-LABEL: func.func @pool
// CHECK-NEXT: %p.integers = logical.max_pool %x
// CHECK-NEXT: func.return %p.integers
func.func @pool(%x : tensor<1x8x9x9xui8> {logical.name = "x", logical.role = "input"}) -> (tensor<1x8x5x5xui8> {logical.name = "y"}) {
  %x32 = logical.cast %x : tensor<1x8x9x9xui8> -> tensor<1x8x9x9xi32>
  %xz = logical.constant dense<7> : tensor<1x8x9x9xi32>
  %xc = logical.sub %x32, %xz : tensor<1x8x9x9xi32>
  %xf = logical.cast %xc : tensor<1x8x9x9xi32> -> tensor<1x8x9x9xf32>
  %sx = logical.constant dense<0.02> : tensor<1x8x9x9xf32>
  %xd = logical.mul %xf, %sx : tensor<1x8x9x9xf32>
  %p = logical.max_pool %xd {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<1x8x9x9xf32> -> tensor<1x8x5x5xf32>
  %s = logical.constant dense<0.02> : tensor<1x8x5x5xf32>
  %d = logical.div %p, %s : tensor<1x8x5x5xf32>
  %n = logical.round %d : tensor<1x8x5x5xf32>
  %z = logical.constant dense<7.0> : tensor<1x8x5x5xf32>
  %m = logical.add %n, %z : tensor<1x8x5x5xf32>
  %q = logical.cast %m : tensor<1x8x5x5xf32> -> tensor<1x8x5x5xui8>
  func.return %q : tensor<1x8x5x5xui8>
}

// A negative scale turns the order round, and another step makes other integers.
// CHECK-LABEL: func.func @other_pool
// CHECK: %p = logical.max_pool %xd
// CHECK: %d = logical.div %p
func.func @other_pool(%x : tensor<1x8x9x9xui8> {logical.name = "x", logical.role = "input"}) -> (tensor<1x8x9x9xui8> {logical.name = "y"}) {
  %xf = logical.cast %x : tensor<1x8x9x9xui8> -> tensor<1x8x9x9xf32>
  %sx = logical.constant dense<-0.02> : tensor<1x8x9x9xf32>
  %xd = logical.mul %xf, %sx : tensor<1x8x9x9xf32>
  %p = logical.max_pool %xd {sizes = [3, 3], strides = [1, 1], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<1x8x9x9xf32> -> tensor<1x8x9x9xf32>
  %s = logical.constant dense<0.03> : tensor<1x8x9x9xf32>
  %d = logical.div %p, %s : tensor<1x8x9x9xf32>
  %n = logical.round %d : tensor<1x8x9x9xf32>
  %q = logical.cast %n : tensor<1x8x9x9xf32> -> tensor<1x8x9x9xui8>
  func.return %q : tensor<1x8x9x9xui8>
}
