// RUN: aicf-opt %s -p lower-logical | filecheck %s

// A border smaller than every number, windows, and their largest elements; no border where none is reached.
// CHECK-LABEL: func.func @largest
// CHECK-NEXT: %p.beyond = logical.constant dense<0xff800000> {{.*}} : tensor<f32>
// CHECK-NEXT: %p.padded = logical.pad %x, %p.beyond {low = [0, 0, 1], high = [0, 0, 1]
// CHECK-NEXT: %p.windows = logical.window %p.padded {sizes = [3], strides = [2], dilations = [1]
// CHECK-NEXT: %p.max = logical.reduce_max %p.windows {axes = [3]
// CHECK-NEXT: %q.windows = logical.window %x {sizes = [3], strides = [2], dilations = [1]
// CHECK-NEXT: %q.max = logical.reduce_max %q.windows {axes = [3]
func.func @largest(%x : tensor<2x3x9xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2x3x5xf32> {logical.name = "p"}, tensor<2x3x4xf32> {logical.name = "q"}) {
  %p = logical.max_pool %x {sizes = [3], strides = [2], dilations = [1], low = [1], high = [1], aicf.id = "p"} : tensor<2x3x9xf32> -> tensor<2x3x5xf32>
  %q = logical.max_pool %x {sizes = [3], strides = [2], dilations = [1], low = [0], high = [1], aicf.id = "q"} : tensor<2x3x9xf32> -> tensor<2x3x4xf32>
  func.return %p, %q : tensor<2x3x5xf32>, tensor<2x3x4xf32>
}

// Sums over how many elements each window finds: one number where that is the same for all.
// CHECK-LABEL: func.func @means
// CHECK: %a.sum = logical.reduce_sum
// CHECK-NEXT: %{{.*}} = logical.constant dense<[4.000000e+00, 6.000000e+00, 6.000000e+00]> {{.*}} : tensor<3xf32>
// CHECK-NEXT: %{{.*}} = logical.broadcast %{{.*}} {dimensions = [2]
// CHECK-NEXT: %a.mean = logical.div %a.sum
// CHECK: %b.sum = logical.reduce_sum
// CHECK-NEXT: %{{.*}} = logical.constant dense<6.000000e+00> {{.*}} : tensor<2x3x3x2xf32>
// CHECK-NEXT: %b.mean = logical.div %b.sum
func.func @means(%x : tensor<2x3x4x5xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2x3x3x2xf32> {logical.name = "a"}, tensor<2x3x3x2xf32> {logical.name = "b"}) {
  %a = logical.avg_pool %x {sizes = [3, 2], strides = [1, 2], dilations = [1, 1], low = [1, 0], high = [0, 0], aicf.id = "a"} : tensor<2x3x4x5xf32> -> tensor<2x3x3x2xf32>
  %b = logical.avg_pool %x {sizes = [3, 2], strides = [1, 2], dilations = [1, 1], low = [1, 0], high = [0, 0], count_include_pad, aicf.id = "b"} : tensor<2x3x4x5xf32> -> tensor<2x3x3x2xf32>
  func.return %a, %b : tensor<2x3x3x2xf32>, tensor<2x3x3x2xf32>
}
