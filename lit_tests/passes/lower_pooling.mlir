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

// The first of the largest elements of each window as an 8-bit number, 3 if it finds none. Of three elements with one
// before the first, an even element is number 1 of one window, an odd one number 2 of one and number 0 of the next.
// Nothing wider than the operand is padded or put together.
// CHECK-LABEL: func.func @passed_back
// CHECK: %t.here = logical.and %t.or, %t.inside
// CHECK-NEXT: %t.none = logical.constant dense<3>
// CHECK-NEXT: %t.select = logical.select %t.here, %t.tap, %t.none
// CHECK-NEXT: %t.first_1 = logical.reduce_min %t.select {axes = [3]
// CHECK-NEXT: %t.narrow = logical.cast %t.first_1 {{.*}} -> tensor<1x2x2xi8>
// CHECK: %d.pad = logical.pad %t.narrow, %d.zero {low = [0, 0, 0], high = [0, 0, 1]
// CHECK: %d.pad_1 = logical.pad %g, %d.zero_1 {{.*}} -> tensor<1x2x3xbf16>
// CHECK: %d.windows = logical.slice %d.pad {starts = [0, 0, 0]
// CHECK: %d.tap = logical.constant dense<1>
// CHECK-NEXT: %d.eq = logical.compare "eq" %d.windows, %d.tap
// CHECK: %d.phase = logical.cast %d.select {{.*}} -> tensor<1x2x2xbf16>
// CHECK: %d.tap_1 = logical.constant dense<2>
// CHECK: %d.windows_4 = logical.slice %d.pad {starts = [0, 0, 1]
// CHECK: %d.tap_2 = logical.constant dense<0>
// CHECK: %d.sum = logical.add %d.select_1, %d.select_2
// CHECK: %d.phases = logical.concat {{.*}} -> tensor<1x4x2xbf16>
func.func @passed_back(%x : tensor<1x2x4xbf16>, %g : tensor<1x2x2xbf16>) -> tensor<1x2x4xbf16> {
  %0 = logical.max_pool_taps %x {sizes = [3], strides = [2], dilations = [1], low = [1], high = [0], aicf.id = "t"} : tensor<1x2x4xbf16> -> tensor<1x2x2xi8>
  %1 = logical.max_pool_grad %0, %g {whole = [4], sizes = [3], strides = [2], dilations = [1], low = [1], aicf.id = "d"} : (tensor<1x2x2xi8>, tensor<1x2x2xbf16>) -> tensor<1x2x4xbf16>
  func.return %1 : tensor<1x2x4xbf16>
}
