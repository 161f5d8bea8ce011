// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical,lower-convolutions,fuse-epilogues' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"},raise-emit,aicf-inference{target="cpu:x86-64-v4" start=lowered}' | filecheck %s --check-prefix=EMIT

// CHECK: emit.decision "lower-convolutions" ["volume"] choice "as a product of windows" because "{{.*}}cpu.conv_avx512: it convolves along one or two dimensions
// CHECK: emit.decision "fuse-epilogues" ["c", "c.sums", "c.bias", "y"] choice "one kernel for 3 ops"

// A convolution is one instruction, with its bias, the activation and what is added behind it.
// CHECK-LABEL: func.func @kernel
// CHECK: emit.group "c" from ["c", "y"]
// CHECK: logical.conv
// CHECK: logical.add
// CHECK: logical.relu
// A target without kernels for convolutions has products of windows.
// CUDA-LABEL: func.func @kernel
// CUDA-NOT: logical.conv
// CUDA: logical.pad
// CUDA-NEXT: %c.windows = logical.window
// CUDA-NEXT: logical.transpose
// CUDA-NEXT: logical.reshape
// CUDA-NEXT: logical.reshape
// CUDA: logical.matmul
// EMIT: emit.kernel @c.code parallel [1, 32, 8, 8] reduce []
// EMIT: emit.program @prepare
// EMIT: emit.resolved "pack"
// EMIT: emit.program @kernel
// EMIT: emit.resolved "conv" id(38) name("c") src(["c", "y"])
// EMIT: attrs {groups = 1 : i64, stride_0 = 1 : i64, stride_1 = 1 : i64, stride_2 = 1 : i64, dilation_0 = 1 : i64, dilation_1 = 1 : i64, dilation_2 = 1 : i64, low_0 = 1 : i64, low_1 = 1 : i64, low_2 = 0 : i64} schema("conv.v1")
// EMIT: kernel("cpu.conv_avx512"
// EMIT-NOT: emit.resolved
// EMIT: emit.program @volume
func.func @kernel(%x : tensor<1x16x8x8xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<32x16x3x3xf32> {logical.name = "w", logical.role = "param"}, %b : tensor<32xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<1x32x8x8xf32> {logical.name = "y"}) {
  %c = logical.conv %x, %w, %b {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x16x8x8xf32>, tensor<32x16x3x3xf32>, tensor<32xf32>) -> tensor<1x32x8x8xf32>
  %y = logical.relu %c : tensor<1x32x8x8xf32>
  func.return %y : tensor<1x32x8x8xf32>
}

// Where no kernel takes one, the ledger says why, and a product does it.
// CHECK-LABEL: func.func @volume
// CHECK-NOT: logical.conv
// CHECK: logical.window
// CHECK: logical.matmul
func.func @volume(%x : tensor<1x16x8x8x8xf16> {logical.name = "x", logical.role = "input"}, %w : tensor<32x16x3x3x3xf16> {logical.name = "w", logical.role = "param"}) -> (tensor<1x32x6x6x6xf16> {logical.name = "y"}) {
  %volume = logical.conv %x, %w {strides = [1, 1, 1], low = [0, 0, 0], high = [0, 0, 0], dilations = [1, 1, 1], groups = 1} : (tensor<1x16x8x8x8xf16>, tensor<32x16x3x3x3xf16>) -> tensor<1x32x6x6x6xf16>
  func.return %volume : tensor<1x32x6x6x6xf16>
}

// A transposed convolution is one convolution of all places between two windows, whose weight is moved into one piece.
// CHECK-LABEL: func.func @back
// CHECK: emit.group "t" from ["t"]
// CHECK: logical.transpose
// CHECK: logical.conv {{.*}} {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1, {{.*}} : (tensor<1x16x8x8xf32>, tensor<32x16x2x2xf32>) -> tensor<1x32x9x9xf32>
// CHECK: logical.slice
// CHECK-SAME: tensor<1x8x18x18xf32> -> tensor<1x8x16x16xf32>
func.func @back(%x : tensor<1x16x8x8xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<16x8x4x4xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<1x8x16x16xf32> {logical.name = "y"}) {
  %t = logical.conv_transpose %x, %w {strides = [2, 2], low = [1, 1], high = [1, 1], extra = [0, 0], dilations = [1, 1], groups = 1} : (tensor<1x16x8x8xf32>, tensor<16x8x4x4xf32>) -> tensor<1x8x16x16xf32>
  func.return %t : tensor<1x8x16x16xf32>
}
