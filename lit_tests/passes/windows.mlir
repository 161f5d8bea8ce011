// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"},raise-emit' | filecheck %s --check-prefix=RAISED
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"},raise-emit,aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s

// Windows are strides of what reads them, which overlap: nothing is copied. Raised, the strides are windows again.
// CHECK: emit.kernel @y.code parallel [2, 3, 4, 5] reduce [3, 3]
// CHECK: emit.program @pool
// CHECK: emit.resolved {{.*}} name("e")
// CHECK: emit.view %{{.*}} offset(0) : !emit.buffer<2x3x9x11xf32, arena> to !emit.buffer<2x3x4x5x3x3xf32, arena, strides [297, 99, 22, 2, 11, 1]>
// CHECK-NEXT: emit.resolved {{.*}} name("y")
// CHECK-NOT: emit.resolved
// RAISED: logical.exp
// RAISED-NEXT: logical.window %e {sizes = [3, 3], strides = [2, 2], dilations = [1, 1]
// RAISED-NEXT: logical.reduce_max
func.func @pool(%x : tensor<2x3x9x11xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2x3x4x5xf32> {logical.name = "y"}) {
  %e = logical.exp %x : tensor<2x3x9x11xf32>
  %w = logical.window %e {sizes = [3, 3], strides = [2, 2], dilations = [1, 1]} : tensor<2x3x9x11xf32> -> tensor<2x3x4x5x3x3xf32>
  %y = logical.reduce_max %w {axes = [4, 5]} : tensor<2x3x4x5x3x3xf32> -> tensor<2x3x4x5xf32>
  func.return %y : tensor<2x3x4x5xf32>
}
