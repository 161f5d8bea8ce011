// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical,legalize-for-target' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "legalize-for-target" ["many"] choice "as convolutions of its phases" because "{{.*}}it has 20 phases, more than 16
// CHECK-NOT: emit.decision "legalize-for-target"

// Transposed convolutions of halves whose windows overlap or touch are one instruction. With a stride of 1 they are
// convolutions, and so are those of other types and with gaps: the formula is taken at once.
// CHECK-LABEL: func.func @up
// CHECK: %pair.sums = logical.conv_transpose %x, %w
// CHECK-NEXT: %pair.bias.broadcast = logical.broadcast %b
// CHECK-NEXT: %pair.bias = logical.add %pair.sums, %pair.bias.broadcast
// CHECK: %same.sums = logical.conv {{.*}} {strides = [1]
// CHECK: %gap.sums = logical.conv {{.*}} {strides = [1]
// CHECK: %wide.sums = logical.conv {{.*}} {strides = [1]
// CHECK: %many.sums = logical.conv {{.*}} {strides = [1]
// CHECK-NOT: logical.conv_transpose
// CPU-LABEL: func.func @up
// CPU-NOT: logical.conv_transpose
// EMIT: emit.resolved "conv_transpose" id(56) name("pair")
// EMIT: kernel("cuda.conv_transpose_
func.func @up(%x : tensor<2x8x6xf16> {logical.name = "x", logical.role = "input"}, %w : tensor<8x16x3xf16> {logical.name = "w", logical.role = "param"}, %b : tensor<16xf16> {logical.name = "b", logical.role = "param"}, %f : tensor<2x8x6xf32> {logical.name = "f", logical.role = "input"}, %wf : tensor<8x16x3xf32> {logical.name = "wf", logical.role = "param"}, %wm : tensor<8x16x20xf16> {logical.name = "wm", logical.role = "param"})
    -> (tensor<2x16x13xf16> {logical.name = "pair"}, tensor<2x16x8xf16> {logical.name = "same"}, tensor<2x16x23xf16> {logical.name = "gap"}, tensor<2x16x13xf32> {logical.name = "wide"}, tensor<2x16x120xf16> {logical.name = "many"}) {
  %pair = logical.conv_transpose %x, %w, %b {strides = [2], low = [0], high = [0], extra = [0], dilations = [1], groups = 1} : (tensor<2x8x6xf16>, tensor<8x16x3xf16>, tensor<16xf16>) -> tensor<2x16x13xf16>
  %same = logical.conv_transpose %x, %w {strides = [1], low = [0], high = [0], extra = [0], dilations = [1], groups = 1} : (tensor<2x8x6xf16>, tensor<8x16x3xf16>) -> tensor<2x16x8xf16>
  %gap = logical.conv_transpose %x, %w {strides = [4], low = [0], high = [0], extra = [0], dilations = [1], groups = 1} : (tensor<2x8x6xf16>, tensor<8x16x3xf16>) -> tensor<2x16x23xf16>
  %wide = logical.conv_transpose %f, %wf {strides = [2], low = [0], high = [0], extra = [0], dilations = [1], groups = 1} : (tensor<2x8x6xf32>, tensor<8x16x3xf32>) -> tensor<2x16x13xf32>
  %many = logical.conv_transpose %x, %wm {strides = [20], low = [0], high = [0], extra = [0], dilations = [1], groups = 1} : (tensor<2x8x6xf16>, tensor<8x16x20xf16>) -> tensor<2x16x120xf16>
  func.return %pair, %same, %gap, %wide, %many : tensor<2x16x13xf16>, tensor<2x16x8xf16>, tensor<2x16x23xf16>, tensor<2x16x13xf32>, tensor<2x16x120xf16>
}
