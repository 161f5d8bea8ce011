// RUN: aicf-opt %s -p logical-canonicalize,logical-dce | filecheck %s

// Views and casts that change nothing; the producer stands for them from then on.
// CHECK-LABEL: func.func @identities
func.func @identities(%x : tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK-NEXT: %p = logical.exp %x {aicf.id = "p", aicf.src = ["p", "a", "b", "c", "d", "e", "f"]}
  %p = logical.exp %x {aicf.id = "p", aicf.src = ["p"]} : tensor<2x3xf32>
  %a = logical.reshape %p {aicf.src = ["a"]} : tensor<2x3xf32> -> tensor<2x3xf32>
  %b = logical.transpose %a {permutation = [0, 1], aicf.src = ["b"]} : tensor<2x3xf32> -> tensor<2x3xf32>
  %c = logical.broadcast %b {dimensions = [0, 1], aicf.src = ["c"]} : tensor<2x3xf32> -> tensor<2x3xf32>
  %d = logical.slice %c {starts = [0, 0], sizes = [2, -1], strides = [1, 1], aicf.src = ["d"]} : tensor<2x3xf32> -> tensor<2x3xf32>
  %e = logical.cast %d {aicf.src = ["e"]} : tensor<2x3xf32> -> tensor<2x3xf32>
  %f = logical.concat %e {axis = 0, aicf.src = ["f"]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: func.return %p
  func.return %f : tensor<2x3xf32>
}

// Windows that overlap nowhere and leave nothing out are a reshape; others stay.
// CHECK-LABEL: func.func @windows
// CHECK-NEXT: [[A:%.*]] = logical.reshape %x
// CHECK-NEXT: [[B:%.*]] = logical.window %y
// CHECK-NEXT: [[C:%.*]] = logical.window %x
// CHECK-NEXT: func.return [[A]], [[B]], [[C]]
func.func @windows(%x : tensor<4x6xf32>, %y : tensor<4x7xf32>) -> (tensor<4x3x2xf32>, tensor<4x3x2xf32>, tensor<4x5x2xf32>) {
  %0 = logical.window %x {sizes = [2], strides = [2], dilations = [1]} : tensor<4x6xf32> -> tensor<4x3x2xf32>
  %1 = logical.window %y {sizes = [2], strides = [2], dilations = [1]} : tensor<4x7xf32> -> tensor<4x3x2xf32>
  %2 = logical.window %x {sizes = [2], strides = [1], dilations = [1]} : tensor<4x6xf32> -> tensor<4x5x2xf32>
  func.return %0, %1, %2 : tensor<4x3x2xf32>, tensor<4x3x2xf32>, tensor<4x5x2xf32>
}

// A square transposition has equal types on both sides and is none of them.
// CHECK-LABEL: func.func @square
func.func @square(%x : tensor<3x3xf32>) -> tensor<3x3xf32> {
  // CHECK-NEXT: logical.transpose
  %0 = logical.transpose %x {permutation = [1, 0]} : tensor<3x3xf32> -> tensor<3x3xf32>
  func.return %0 : tensor<3x3xf32>
}

// Chains of one kind of view become one, under the id of the last.
// CHECK-LABEL: func.func @chains
func.func @chains(%x : tensor<2x3x4xf32>, %b : tensor<3xf32>) -> (tensor<4x6xf32>, tensor<3x4x2xf32>, tensor<2x3x4xf32>) {
  // CHECK-NEXT: logical.reshape %x {aicf.id = "r3", aicf.src = ["r3", "r2", "r1"]} : tensor<2x3x4xf32> -> tensor<4x6xf32>
  %r1 = logical.reshape %x {aicf.id = "r1", aicf.src = ["r1"]} : tensor<2x3x4xf32> -> tensor<24xf32>
  %r2 = logical.reshape %r1 {aicf.id = "r2", aicf.src = ["r2"]} : tensor<24xf32> -> tensor<6x4xf32>
  %r3 = logical.reshape %r2 {aicf.id = "r3", aicf.src = ["r3"]} : tensor<6x4xf32> -> tensor<4x6xf32>
  // CHECK-NEXT: logical.transpose %x {permutation = [1, 2, 0]} : tensor<2x3x4xf32> -> tensor<3x4x2xf32>
  %t1 = logical.transpose %x {permutation = [2, 0, 1]} : tensor<2x3x4xf32> -> tensor<4x2x3xf32>
  %t2 = logical.transpose %t1 {permutation = [2, 0, 1]} : tensor<4x2x3xf32> -> tensor<3x4x2xf32>
  // CHECK-NEXT: logical.broadcast %b {dimensions = [1]} : tensor<3xf32> -> tensor<2x3x4xf32>
  %b1 = logical.broadcast %b {dimensions = [0]} : tensor<3xf32> -> tensor<3x1xf32>
  %b2 = logical.broadcast %b1 {dimensions = [1, 2]} : tensor<3x1xf32> -> tensor<2x3x4xf32>
  func.return %r3, %t2, %b2 : tensor<4x6xf32>, tensor<3x4x2xf32>, tensor<2x3x4xf32>
}

// Transpositions that undo each other vanish, and so do reshapes.
// CHECK-LABEL: func.func @undone
func.func @undone(%x : tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = logical.transpose %x {permutation = [1, 0]} : tensor<2x3xf32> -> tensor<3x2xf32>
  %1 = logical.transpose %0 {permutation = [1, 0]} : tensor<3x2xf32> -> tensor<2x3xf32>
  %2 = logical.reshape %1 : tensor<2x3xf32> -> tensor<6xf32>
  %3 = logical.reshape %2 : tensor<6xf32> -> tensor<2x3xf32>
  %4 = logical.neg %3 : tensor<2x3xf32>
  %5 = logical.neg %4 : tensor<2x3xf32>
  // CHECK-NEXT: func.return %x
  func.return %5 : tensor<2x3xf32>
}

// The neutral elements that are exact for every operand.
// CHECK-LABEL: func.func @neutral
func.func @neutral(%x : tensor<4xf32>, %i : tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>) {
  %one = logical.constant dense<1.0> : tensor<4xf32>
  %zero = logical.constant dense<0.0> : tensor<4xf32>
  %0 = logical.mul %x, %one : tensor<4xf32>
  %1 = logical.mul %one, %0 : tensor<4xf32>
  %2 = logical.div %1, %one : tensor<4xf32>
  %3 = logical.sub %2, %zero : tensor<4xf32>
  %izero = logical.constant dense<0> : tensor<4xi32>
  %4 = logical.add %i, %izero : tensor<4xi32>
  %5 = logical.add %izero, %4 : tensor<4xi32>
  // CHECK-NEXT: func.return %x, %i
  func.return %3, %5 : tensor<4xf32>, tensor<4xi32>
}

// x + 0.0 turns -0.0 into 0.0, as does x - (-0.0), and 1 / x is no neutral form: they stay.
// CHECK-LABEL: func.func @inexact
func.func @inexact(%x : tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-COUNT-2: logical.constant
  %zero = logical.constant dense<0.0> : tensor<4xf32>
  %minus_zero = logical.constant dense<-0.0> : tensor<4xf32>
  %one = logical.constant dense<1.0> : tensor<4xf32>
  // CHECK: logical.add
  %0 = logical.add %x, %zero : tensor<4xf32>
  // CHECK-NEXT: logical.sub
  %1 = logical.sub %0, %minus_zero : tensor<4xf32>
  // CHECK-NEXT: logical.div
  %2 = logical.div %one, %1 : tensor<4xf32>
  func.return %2 : tensor<4xf32>
}

// An inner view with other users stays for them.
// CHECK-LABEL: func.func @shared
func.func @shared(%x : tensor<2x3xf32>) -> (tensor<6xf32>, tensor<3x2xf32>) {
  // CHECK-NEXT: logical.reshape %x : tensor<2x3xf32> -> tensor<6xf32>
  %0 = logical.reshape %x : tensor<2x3xf32> -> tensor<6xf32>
  // CHECK-NEXT: logical.reshape %x : tensor<2x3xf32> -> tensor<3x2xf32>
  %1 = logical.reshape %0 : tensor<6xf32> -> tensor<3x2xf32>
  func.return %0, %1 : tensor<6xf32>, tensor<3x2xf32>
}


// A concatenation of a concatenation along the same axis that nothing else reads is one; along another axis it is not.
// CHECK-LABEL: func.func @concats
// CHECK-NEXT: %v = logical.concat %x, %y, %x {axis = 0, aicf.src = ["v", "u"]} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<6x3xf32>
// CHECK-NEXT: %w = logical.concat %v, %v
func.func @concats(%x : tensor<2x3xf32>, %y : tensor<2x3xf32>) -> tensor<6x6xf32> {
  %u = logical.concat %x, %y {axis = 0, aicf.src = ["u"]} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %v = logical.concat %u, %x {axis = 0, aicf.src = ["v"]} : (tensor<4x3xf32>, tensor<2x3xf32>) -> tensor<6x3xf32>
  %w = logical.concat %v, %v {axis = 1, aicf.src = ["w"]} : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<6x6xf32>
  func.return %w : tensor<6x6xf32>
}

// A slice of a concatenation that lies in one operand is one of that; across two it stays.
// CHECK-LABEL: func.func @parts
// CHECK: %s = logical.slice %y {starts = [0, 0], sizes = [2, 2], strides = [1, 2], aicf.src = ["s"]} : tensor<2x3xf32> -> tensor<2x2xf32>
// CHECK-NEXT: %t = logical.slice %c
// CHECK-NEXT: func.return %s, %t, %x
func.func @parts(%x : tensor<2x3xf32>, %y : tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %c = logical.concat %x, %y {axis = 0, aicf.src = ["c"]} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %s = logical.slice %c {starts = [2, 0], sizes = [2, 2], strides = [1, 2], aicf.src = ["s"]} : tensor<4x3xf32> -> tensor<2x2xf32>
  %t = logical.slice %c {starts = [1, 0], sizes = [2, 3], strides = [1, 1], aicf.src = ["t"]} : tensor<4x3xf32> -> tensor<2x3xf32>
  %u = logical.slice %c {starts = [0, 0], sizes = [2, 3], strides = [1, 1], aicf.src = ["u"]} : tensor<4x3xf32> -> tensor<2x3xf32>
  func.return %s, %t, %u : tensor<2x2xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// A slice of a broadcast that takes all of what is repeated is a broadcast, if anything; one that takes a part stays.
// CHECK-LABEL: func.func @repeated
// CHECK-NEXT: %b = logical.broadcast
// CHECK-NEXT: %s = logical.broadcast %x {dimensions = [1], aicf.src = ["s", "b"]} : tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %t = logical.slice %b
// CHECK-NEXT: func.return %s, %t, %y
func.func @repeated(%x : tensor<3xf32>, %y : tensor<1xf32>) -> (tensor<2x3xf32>, tensor<2x2xf32>, tensor<1xf32>) {
  %b = logical.broadcast %x {dimensions = [1], aicf.src = ["b"]} : tensor<3xf32> -> tensor<4x3xf32>
  %s = logical.slice %b {starts = [1, 0], sizes = [2, 3], strides = [2, 1], aicf.src = ["s"]} : tensor<4x3xf32> -> tensor<2x3xf32>
  %t = logical.slice %b {starts = [0, 1], sizes = [2, 2], strides = [1, 1], aicf.src = ["t"]} : tensor<4x3xf32> -> tensor<2x2xf32>
  %c = logical.broadcast %y {dimensions = [0], aicf.src = ["c"]} : tensor<1xf32> -> tensor<9xf32>
  %u = logical.slice %c {starts = [4], sizes = [1], strides = [3], aicf.src = ["u"]} : tensor<9xf32> -> tensor<1xf32>
  func.return %s, %t, %u : tensor<2x3xf32>, tensor<2x2xf32>, tensor<1xf32>
}

// Heads joined with the batch around a transposition, as PyTorch exports keys: one transposition of four dims.
// CHECK-LABEL: func.func @heads
// CHECK-NEXT: [[Y:%.*]] = logical.transpose %x {permutation = [0, 2, 3, 1], aicf.src = ["d", "c", "b", "a"]} : tensor<2x5x3x4xf32> -> tensor<2x3x4x5xf32>
// CHECK-NEXT: func.return [[Y]]
func.func @heads(%x : tensor<2x5x3x4xf32>) -> tensor<2x3x4x5xf32> {
  %a = logical.transpose %x {permutation = [0, 2, 1, 3], aicf.src = ["a"]} : tensor<2x5x3x4xf32> -> tensor<2x3x5x4xf32>
  %b = logical.reshape %a {aicf.src = ["b"]} : tensor<2x3x5x4xf32> -> tensor<6x5x4xf32>
  %c = logical.transpose %b {permutation = [0, 2, 1], aicf.src = ["c"]} : tensor<6x5x4xf32> -> tensor<6x4x5xf32>
  %d = logical.reshape %c {aicf.src = ["d"]} : tensor<6x4x5xf32> -> tensor<2x3x4x5xf32>
  func.return %d : tensor<2x3x4x5xf32>
}

// Dims that come apart otherwise than they were joined, and those that were split before they moved, stay as they are.
// CHECK-LABEL: func.func @otherwise
// CHECK-COUNT-4: logical.reshape
// CHECK-NEXT: func.return
func.func @otherwise(%x : tensor<2x3x5x4xf32>, %y : tensor<6x4xf32>) -> (tensor<3x2x4x5xf32>, tensor<8x3xf32>) {
  %a = logical.reshape %x : tensor<2x3x5x4xf32> -> tensor<6x5x4xf32>
  %b = logical.transpose %a {permutation = [0, 2, 1]} : tensor<6x5x4xf32> -> tensor<6x4x5xf32>
  %u = logical.reshape %y : tensor<6x4xf32> -> tensor<2x3x4xf32>
  %v = logical.transpose %u {permutation = [0, 2, 1]} : tensor<2x3x4xf32> -> tensor<2x4x3xf32>
  %c = logical.reshape %b : tensor<6x4x5xf32> -> tensor<3x2x4x5xf32>
  %w = logical.reshape %v : tensor<2x4x3xf32> -> tensor<8x3xf32>
  func.return %c, %w : tensor<3x2x4x5xf32>, tensor<8x3xf32>
}

// Pads that poolings and convolutions could say themselves become their padding.
// CHECK-LABEL: func.func @padding
// CHECK: logical.max_pool %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 2], high = [3, 4], aicf.src = ["m", "p"]}
// CHECK-NEXT: logical.avg_pool %x {count_include_pad, {{.*}}low = [0, 1], high = [2, 3]}
// CHECK-NEXT: logical.conv %x, %w {{.*}}low = [1, 2], high = [3, 4],
// CHECK-NEXT: func.return
func.func @padding(%x : tensor<1x2x5x5xf32>, %w : tensor<4x2x3x3xf32>) -> (tensor<1x2x4x5xf32>, tensor<1x2x5x7xf32>, tensor<1x4x7x9xf32>) {
  %low = logical.constant dense<0xFF800000> : tensor<f32>
  %zero = logical.constant dense<0.0> : tensor<f32>
  %p = logical.pad %x, %low {low = [0, 0, 0, 1], high = [0, 0, 2, 3], aicf.src = ["p"]} : (tensor<1x2x5x5xf32>, tensor<f32>) -> tensor<1x2x7x9xf32>
  %m = logical.max_pool %p {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1], aicf.src = ["m"]} : tensor<1x2x7x9xf32> -> tensor<1x2x4x5xf32>
  %q = logical.pad %x, %zero {low = [0, 0, 0, 1], high = [0, 0, 2, 3]} : (tensor<1x2x5x5xf32>, tensor<f32>) -> tensor<1x2x7x9xf32>
  %a = logical.avg_pool %q {sizes = [3, 3], strides = [1, 1], dilations = [1, 1], low = [0, 0], high = [0, 0]} : tensor<1x2x7x9xf32> -> tensor<1x2x5x7xf32>
  %c = logical.conv %q, %w {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x2x7x9xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x7x9xf32>
  func.return %m, %a, %c : tensor<1x2x4x5xf32>, tensor<1x2x5x7xf32>, tensor<1x4x7x9xf32>
}

// What lies around a convolution of short integers is what its pad holds.
// CHECK-LABEL: func.func @padding_values
// CHECK: %p = logical.pad
// CHECK-NEXT: logical.conv %x, %w {{.*}}low = [2], high = [1], {{.*}}padding_value = 7}
// CHECK-NEXT: logical.conv %p, %w {{.*}}padding_value = 8}
func.func @padding_values(%x : tensor<1x2x5xui8>, %w : tensor<4x2x3xi8>) -> (tensor<1x4x6xi32>, tensor<1x4x6xi32>) {
  %seven = logical.constant dense<7> : tensor<ui8>
  %p = logical.pad %x, %seven {low = [0, 0, 1], high = [0, 0, 0]} : (tensor<1x2x5xui8>, tensor<ui8>) -> tensor<1x2x6xui8>
  %c = logical.conv %p, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, widening, padding_value = 7} : (tensor<1x2x6xui8>, tensor<4x2x3xi8>) -> tensor<1x4x6xi32>
  %d = logical.conv %p, %w {strides = [1], low = [1], high = [1], dilations = [1], groups = 1, widening, padding_value = 8} : (tensor<1x2x6xui8>, tensor<4x2x3xi8>) -> tensor<1x4x6xi32>
  func.return %c, %d : tensor<1x4x6xi32>, tensor<1x4x6xi32>
}

// Another element, a pad of channels, an average that leaves its own padding out, and windows of ceil_mode keep theirs.
// CHECK-LABEL: func.func @other_padding
// CHECK: logical.max_pool %q
// CHECK-NEXT: logical.avg_pool %q
// CHECK-NEXT: logical.avg_pool %q
// CHECK: logical.conv %r, %w
func.func @other_padding(%x : tensor<1x2x5x5xf32>, %w : tensor<4x3x3x3xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x7x9xf32>, tensor<1x2x3x5xf32>, tensor<1x4x3x3xf32>) {
  %zero = logical.constant dense<0.0> : tensor<f32>
  %q = logical.pad %x, %zero {low = [0, 0, 0, 1], high = [0, 0, 2, 3]} : (tensor<1x2x5x5xf32>, tensor<f32>) -> tensor<1x2x7x9xf32>
  %m = logical.max_pool %q {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [0, 0], high = [0, 0]} : tensor<1x2x7x9xf32> -> tensor<1x2x3x4xf32>
  %a = logical.avg_pool %q {sizes = [3, 3], strides = [1, 1], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<1x2x7x9xf32> -> tensor<1x2x7x9xf32>
  %b = logical.avg_pool %q {sizes = [2, 2], strides = [3, 2], dilations = [1, 1], low = [0, 0], high = [0, 0], ceil_mode} : tensor<1x2x7x9xf32> -> tensor<1x2x3x5xf32>
  %r = logical.pad %x, %zero {low = [0, 1, 0, 0], high = [0, 0, 0, 0]} : (tensor<1x2x5x5xf32>, tensor<f32>) -> tensor<1x3x5x5xf32>
  %c = logical.conv %r, %w {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<1x3x5x5xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x3x3xf32>
  func.return %m, %a, %b, %c : tensor<1x2x3x4xf32>, tensor<1x2x7x9xf32>, tensor<1x2x3x5xf32>, tensor<1x4x3x3xf32>
}

// A gather at one known place, or at places that are evenly spaced, is a slice: from the end, and clamped, as a gather counts.
// CHECK-LABEL: func.func @gathered
// CHECK-NEXT: %[[A:.*]] = logical.slice %x {starts = [1, 0], sizes = [1, -1], strides = [1, 1]} : tensor<5x4xf32> -> tensor<1x4xf32>
// CHECK-NEXT: %[[B:.*]] = logical.reshape %[[A]] : tensor<1x4xf32> -> tensor<4xf32>
// CHECK-NEXT: logical.slice %x {starts = [4, 0], sizes = [1, -1], strides = [1, 1]} : tensor<5x4xf32> -> tensor<1x4xf32>
// CHECK-NEXT: logical.slice %x {starts = [0, 1], sizes = [-1, 2], strides = [1, 2]} : tensor<5x4xf32> -> tensor<5x2xf32>
func.func @gathered(%x : tensor<5x4xf32>) -> (tensor<4xf32>, tensor<1x4xf32>, tensor<5x2xf32>) {
  %i = logical.constant dense<-4> : tensor<i64>
  %j = logical.constant dense<9> : tensor<1xi64>
  %k = logical.constant dense<[1, 3]> : tensor<2xi64>
  %a = logical.gather %x, %i {axis = 0} : (tensor<5x4xf32>, tensor<i64>) -> tensor<4xf32>
  %b = logical.gather %x, %j {axis = 0} : (tensor<5x4xf32>, tensor<1xi64>) -> tensor<1x4xf32>
  %c = logical.gather %x, %k {axis = 1} : (tensor<5x4xf32>, tensor<2xi64>) -> tensor<5x2xf32>
  func.return %a, %b, %c : tensor<4xf32>, tensor<1x4xf32>, tensor<5x2xf32>
}

// Places that repeat, or fall, stay with the gather.
// CHECK-LABEL: func.func @scattered
// CHECK: logical.gather
// CHECK: logical.gather
func.func @scattered(%x : tensor<5x4xf32>) -> (tensor<2x4xf32>, tensor<3x4xf32>) {
  %i = logical.constant dense<2> : tensor<2xi64>
  %j = logical.constant dense<[3, 2, 1]> : tensor<3xi64>
  %a = logical.gather %x, %i {axis = 0} : (tensor<5x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  %b = logical.gather %x, %j {axis = 0} : (tensor<5x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  func.return %a, %b : tensor<2x4xf32>, tensor<3x4xf32>
}

// Of elements that all are one number it is that number, wherever they are taken from.
// CHECK-LABEL: func.func @gathered_splat
// CHECK-NEXT: logical.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK-NEXT: %[[A:.*]] = logical.constant dense<2.000000e+00> : tensor<5x3xf32>
// CHECK-NEXT: %[[B:.*]] = logical.constant dense<true> : tensor<3xi1>
// CHECK-NEXT: logical.gather
// CHECK-NEXT: func.return %[[A]], %[[B]]
func.func @gathered_splat(%i : tensor<3xi32>) -> (tensor<5x3xf32>, tensor<3xi1>, tensor<3xf32>) {
  %x = logical.constant dense<2.0> : tensor<5x4xf32>
  %y = logical.constant dense<true> : tensor<9xi1>
  %z = logical.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %a = logical.gather %x, %i {axis = 1} : (tensor<5x4xf32>, tensor<3xi32>) -> tensor<5x3xf32>
  %b = logical.gather %y, %i {axis = 0} : (tensor<9xi1>, tensor<3xi32>) -> tensor<3xi1>
  %c = logical.gather %z, %i {axis = 0} : (tensor<2xf32>, tensor<3xi32>) -> tensor<3xf32>
  func.return %a, %b, %c : tensor<5x3xf32>, tensor<3xi1>, tensor<3xf32>
}

// Views of indices are indices in another shape; joined dimensions are none.
// CHECK-LABEL: func.func @indices
// CHECK-NEXT: %[[I:.*]] = logical.iota {axis = 0} : tensor<2x4xi32>
// CHECK-NEXT: logical.iota {axis = 0} : tensor<3x1xi64>
// CHECK-NEXT: logical.iota {axis = 1} : tensor<2x3xi64>
// CHECK-NEXT: logical.iota {axis = 1} : tensor<4x2xi32>
// CHECK-NEXT: logical.reshape %[[I]] : tensor<2x4xi32> -> tensor<8xi32>
func.func @indices() -> (tensor<3x1xi64>, tensor<2x3xi64>, tensor<4x2xi32>, tensor<8xi32>) {
  %i = logical.iota {axis = 0} : tensor<3xi64>
  %j = logical.iota {axis = 0} : tensor<2x4xi32>
  %a = logical.reshape %i : tensor<3xi64> -> tensor<3x1xi64>
  %b = logical.broadcast %i {dimensions = [1]} : tensor<3xi64> -> tensor<2x3xi64>
  %c = logical.transpose %j {permutation = [1, 0]} : tensor<2x4xi32> -> tensor<4x2xi32>
  %d = logical.reshape %j : tensor<2x4xi32> -> tensor<8xi32>
  func.return %a, %b, %c, %d : tensor<3x1xi64>, tensor<2x3xi64>, tensor<4x2xi32>, tensor<8xi32>
}

// A cast of floats to integers cuts off by itself, at the ends of the type alone.
// CHECK-LABEL: func.func @saturating
// CHECK-NEXT: %a = logical.cast %x
// CHECK-NEXT: %b = logical.cast %x
// CHECK-NEXT: %k = logical.clamp %x
// CHECK-NEXT: %d = logical.cast %k
func.func @saturating(%x : tensor<4xf32>) -> (tensor<4xui8>, tensor<4xi8>, tensor<4xui8>) {
  %c = logical.clamp %x {min = 0.0, max = 255.0} : tensor<4xf32>
  %a = logical.cast %c : tensor<4xf32> -> tensor<4xui8>
  %least = logical.constant dense<-128.0> : tensor<4xf32>
  %most = logical.constant dense<127.0> : tensor<4xf32>
  %low = logical.max %x, %least : tensor<4xf32>
  %both = logical.min %low, %most : tensor<4xf32>
  %b = logical.cast %both : tensor<4xf32> -> tensor<4xi8>
  %k = logical.clamp %x {min = 0.0, max = 254.0} : tensor<4xf32>
  %d = logical.cast %k : tensor<4xf32> -> tensor<4xui8>
  func.return %a, %b, %d : tensor<4xui8>, tensor<4xi8>, tensor<4xui8>
}

// Rows that are joined for a product and taken apart after it stay apart; the product and the sum keep their ids.
// CHECK-LABEL: func.func @rows
func.func @rows(%x : tensor<2x3x4xf32>, %w : tensor<4x5xf32>, %b : tensor<5xf32>) -> tensor<2x3x5xf32> {
  // CHECK-NEXT: %m = logical.matmul %x, %w {aicf.id = "m", aicf.src = ["m"]} : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  // CHECK-NEXT: [[B:%.*]] = logical.broadcast %b {dimensions = [2]} : tensor<5xf32> -> tensor<2x3x5xf32>
  // CHECK-NEXT: [[S:%.*]] = logical.add %m, [[B]] {aicf.id = "s", aicf.src = ["r", "s"]} : tensor<2x3x5xf32>
  // CHECK-NEXT: func.return [[S]]
  %j = logical.reshape %x {aicf.id = "j", aicf.src = ["j"]} : tensor<2x3x4xf32> -> tensor<6x4xf32>
  %m = logical.matmul %j, %w {aicf.id = "m", aicf.src = ["m"]} : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32>
  %0 = logical.broadcast %b {dimensions = [1]} : tensor<5xf32> -> tensor<6x5xf32>
  %s = logical.add %m, %0 {aicf.id = "s", aicf.src = ["s"]} : tensor<6x5xf32>
  %r = logical.reshape %s {aicf.id = "r", aicf.src = ["r"]} : tensor<6x5xf32> -> tensor<2x3x5xf32>
  func.return %r : tensor<2x3x5xf32>
}

// Not where they are taken apart otherwise, or where something else reads the joined product.
// CHECK-LABEL: func.func @other_rows
func.func @other_rows(%x : tensor<2x3x4xf32>, %w : tensor<5x4xf32>) -> (tensor<3x2x5xf32>, tensor<6x5xf32>, tensor<2x3x5xf32>) {
  // CHECK-COUNT-2: (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  // CHECK-NOT: logical.matmul
  %j = logical.reshape %x : tensor<2x3x4xf32> -> tensor<6x4xf32>
  %m = logical.matmul %j, %w {transpose_b} : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  %r = logical.reshape %m : tensor<6x5xf32> -> tensor<3x2x5xf32>
  %n = logical.matmul %j, %w {transpose_b} : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  %s = logical.reshape %n : tensor<6x5xf32> -> tensor<2x3x5xf32>
  func.return %r, %n, %s : tensor<3x2x5xf32>, tensor<6x5xf32>, tensor<2x3x5xf32>
}

// Pointwise ops after a reshape are computed in the shape before it, with their numbers; each keeps its id.
// CHECK-LABEL: func.func @activation
func.func @activation(%x : tensor<2x4x3xf32>, %w : tensor<8x3xf32>, %s : tensor<f32>) -> tensor<2x8x8xf32> {
  // CHECK-NEXT: %g = logical.exp %x {aicf.id = "g"} : tensor<2x4x3xf32>
  // CHECK-NEXT: [[TWO:%.*]] = logical.constant dense<2.000000e+00> {aicf.id = "a.number1"} : tensor<2x4x3xf32>
  // CHECK-NEXT: %a = logical.mul %g, [[TWO]] {aicf.id = "a"} : tensor<2x4x3xf32>
  // CHECK-NEXT: [[ALL:%.*]] = logical.broadcast %s {dimensions = [], aicf.id = "b.number1"} : tensor<f32> -> tensor<2x4x3xf32>
  // CHECK-NEXT: %b = logical.sub %a, [[ALL]] {aicf.id = "b"} : tensor<2x4x3xf32>
  // CHECK-NEXT: %d = logical.mul %b, %g {aicf.id = "d"} : tensor<2x4x3xf32>
  // CHECK-NEXT: [[R:%.*]] = logical.reshape %d {aicf.id = "r"} : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %g = logical.exp %x {aicf.id = "g"} : tensor<2x4x3xf32>
  %r = logical.reshape %g {aicf.id = "r"} : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %c = logical.constant dense<2.0> {aicf.id = "c"} : tensor<8x3xf32>
  %a = logical.mul %r, %c {aicf.id = "a"} : tensor<8x3xf32>
  %t = logical.broadcast %s {dimensions = [], aicf.id = "t"} : tensor<f32> -> tensor<8x3xf32>
  %b = logical.sub %a, %t {aicf.id = "b"} : tensor<8x3xf32>
  %d = logical.mul %b, %r {aicf.id = "d"} : tensor<8x3xf32>
  %m = logical.matmul %d, %w {transpose_b, aicf.id = "m"} : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<8x8xf32>
  %o = logical.broadcast %m {dimensions = [1, 2], aicf.id = "o"} : tensor<8x8xf32> -> tensor<2x8x8xf32>
  func.return %o : tensor<2x8x8xf32>
}

// Not where a pointwise op or a reduction follows them, or another operand has the reshaped shape.
// CHECK-LABEL: func.func @joined
func.func @joined(%x : tensor<2x4x3xf32>, %y : tensor<8x3xf32>) -> (tensor<8x3xf32>, tensor<8xf32>) {
  // CHECK-COUNT-2: logical.reshape {{%.*}} : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %g = logical.exp %x : tensor<2x4x3xf32>
  %r = logical.reshape %g : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %a = logical.neg %r : tensor<8x3xf32>
  %b = logical.add %a, %y : tensor<8x3xf32>
  %h = logical.sqrt %x : tensor<2x4x3xf32>
  %s = logical.reshape %h : tensor<2x4x3xf32> -> tensor<8x3xf32>
  %c = logical.exp %s : tensor<8x3xf32>
  %d = logical.reduce_sum %c {axes = [1]} : tensor<8x3xf32> -> tensor<8xf32>
  func.return %b, %d : tensor<8x3xf32>, tensor<8xf32>
}
