// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical' | filecheck %s --check-prefix=KEPT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical,legalize-for-target,fuse-epilogues' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical,legalize-for-target' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{\"forbid\": [\"cpu.lstm\"]}"},assign-ids,lower-logical,legalize-for-target' | filecheck %s --check-prefix=FORBID
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"},raise-emit,aicf-inference{target="cpu:x86-64-v4" start=lowered}' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s --check-prefix=GPU

// The ledger has the reasons of the kernels. What they run stays one op.
// CHECK-NOT: emit.decision "legalize-for-target" ["c.sums"]
// CHECK: emit.decision "legalize-for-target" ["volume"] choice "as a product of windows" because "{{.*}}cpu.conv_avx512: it convolves along one or two dimensions
// CHECK: emit.decision "legalize-for-target" ["t"] choice "copy" because "'t.sums' reads this operand in one piece"
// CHECK: emit.decision "legalize-for-target" ["a"] choice "as a reduction of windows" because "cpu.pool: its rows are longer than 4096 elements
// CHECK: emit.decision "legalize-for-target" ["all"] choice "as a reduction of windows" because "cpu.pool: its rows are longer than 4096 elements
// CHECK: emit.decision "legalize-for-target" ["turned"] choice "copy" because "'l' reads this operand in one piece"
// CHECK-NOT: emit.decision "legalize-for-target"
// CHECK: emit.decision "fuse-epilogues" ["c", "c.sums", "c.bias", "y"] choice "one kernel for 3 ops"
// CUDA: emit.decision "legalize-for-target" ["all"] choice "as a reduction of windows" because "cuda.pool: its windows have more than 4096 elements: a reduction shares them among blocks
// CUDA: emit.decision "legalize-for-target" ["wide"] choice "as a product of i32 or f32" because {{.*}}cuda.gemm_simt: its sums are i32, wider than a product of u8: cast the operands first
// CUDA: emit.decision "legalize-for-target" ["few.add"] choice "as sums under a mask" because {{.*}}cuda.scatter: 2 rows get 4096 updates, those of a row one after the other: sums under a mask are faster
// CUDA-NOT: emit.decision "legalize-for-target"
// FORBID: emit.decision "legalize-for-target" ["l"] choice "step by step" because "cpu.lstm: forbidden by policy (forbid)"

// A convolution is one instruction, with its bias, the activation and what is added after it.
// CHECK-LABEL: func.func @kernel
// CHECK: emit.group "c" from ["c", "y"]
// CHECK: logical.conv
// CHECK: logical.add
// CHECK: logical.relu
// Its bias is added after the sums, so that it can join the epilogue.
// CUDA-LABEL: func.func @kernel
// CUDA: %c.sums = logical.conv %x, %w {
// CUDA: %c.bias = logical.add %c.sums,
// CUDA-LABEL: func.func @volume
// CUDA: %volume = logical.conv
// EMIT: emit.program @prepare
// EMIT: kernel("cpu.pack"{{.*}}pairs = 1 : i64
// EMIT: emit.kernel @c.code parallel [1, 32, 8, 8] reduce []
// EMIT: emit.program @kernel
// EMIT: emit.resolved "conv" id({{[0-9]+}}) name("c") src(["c", "y"])
// EMIT: attrs {groups = 1 : i64, stride_0 = 1 : i64, stride_1 = 1 : i64, stride_2 = 1 : i64, dilation_0 = 1 : i64, dilation_1 = 1 : i64, dilation_2 = 1 : i64, low_0 = 1 : i64, low_1 = 1 : i64, low_2 = 0 : i64, padding_value = 0 : i64} schema("conv.v2")
// EMIT: kernel("cpu.conv_avx512"
// EMIT-NOT: emit.resolved
// EMIT: emit.program @volume
func.func @kernel(%x : tensor<1x16x8x8xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<32x16x3x3xf32> {logical.name = "w", logical.role = "param"}, %b : tensor<32xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<1x32x8x8xf32> {logical.name = "y"}) {
  %c = logical.conv %x, %w, %b {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x16x8x8xf32>, tensor<32x16x3x3xf32>, tensor<32xf32>) -> tensor<1x32x8x8xf32>
  %y = logical.relu %c : tensor<1x32x8x8xf32>
  func.return %y : tensor<1x32x8x8xf32>
}

// A convolution that no kernel takes is a product.
// CHECK-LABEL: func.func @volume
// CHECK-NOT: logical.conv
// CHECK: logical.window
// CHECK: logical.matmul
func.func @volume(%x : tensor<1x16x8x8x8xf16> {logical.name = "x", logical.role = "input"}, %w : tensor<32x16x3x3x3xf16> {logical.name = "w5", logical.role = "param"}) -> (tensor<1x32x6x6x6xf16> {logical.name = "y"}) {
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
func.func @back(%x : tensor<1x16x8x8xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<16x8x4x4xf32> {logical.name = "w4", logical.role = "param"}) -> (tensor<1x8x16x16xf32> {logical.name = "y"}) {
  %t = logical.conv_transpose %x, %w {strides = [2, 2], low = [1, 1], high = [1, 1], extra = [0, 0], dilations = [1, 1], groups = 1} : (tensor<1x16x8x8xf32>, tensor<16x8x4x4xf32>) -> tensor<1x8x16x16xf32>
  func.return %t : tensor<1x8x16x16xf32>
}

// Poolings that a kernel takes stay one op each and become one instruction. On the cpu long rows are reduced window by
// window, on cuda long windows are, and so is everywhere a pooling that kernels do not know at all.
// KEPT-LABEL: func.func @pools
// KEPT: logical.max_pool %x
// KEPT: logical.avg_pool %h
// KEPT: logical.reduce_sum %l1.windows
// CHECK-LABEL: func.func @pools
// CHECK: %m = logical.max_pool %x
// CHECK-NOT: logical.avg_pool
// CHECK: %a.windows = logical.window
// CHECK: %all.windows = logical.window
// CUDA-LABEL: func.func @pools
// CUDA: %m = logical.max_pool %x
// CUDA: %a = logical.avg_pool %h
// CUDA-NOT: _pool
// CUDA: %all.windows = logical.window
// EMIT: emit.program @pools
// EMIT: emit.resolved "pool" id({{[0-9]+}}) name("m")
// EMIT: attrs {mode = "max", count_include_pad = false, size_0 = 3 : i64
// EMIT: kernel("cpu.pool"
// GPU: emit.program @pools
// GPU: emit.resolved "pool" id({{[0-9]+}}) name("m")
// GPU: kernel("cuda.pool"
// GPU: emit.resolved "pool" id({{[0-9]+}}) name("a")
// GPU-NOT: "pool"
// GPU: emit.resolved {{.*}} name("all")
func.func @pools(%x : tensor<1x3x9x40xf32> {logical.name = "x", logical.role = "input"}, %h : tensor<1x3x5000xf32> {logical.name = "h", logical.role = "input"}) -> (tensor<1x3x5x20xf32> {logical.name = "m"}, tensor<1x3x2500xf32> {logical.name = "a"}, tensor<1x3x4x20xf32> {logical.name = "l"}, tensor<1x3x1xf32> {logical.name = "w"}) {
  %m = logical.max_pool %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<1x3x9x40xf32> -> tensor<1x3x5x20xf32>
  %a = logical.avg_pool %h {sizes = [3], strides = [2], dilations = [1], low = [1], high = [1]} : tensor<1x3x5000xf32> -> tensor<1x3x2500xf32>
  %l1 = logical.lp_pool %x {p = 1, sizes = [2, 2], strides = [2, 2], dilations = [1, 1], low = [0, 0], high = [0, 0]} : tensor<1x3x9x40xf32> -> tensor<1x3x4x20xf32>
  %all = logical.max_pool %h {sizes = [5000], strides = [1], dilations = [1], low = [0], high = [0]} : tensor<1x3x5000xf32> -> tensor<1x3x1xf32>
  func.return %m, %a, %l1, %all : tensor<1x3x5x20xf32>, tensor<1x3x2500xf32>, tensor<1x3x4x20xf32>, tensor<1x3x1xf32>
}

// A kernel of the cpu adds up products of two types in i32; a weight is packed in pairs of k. On cuda the operands are
// cast first. A product that does not widen stays as it is.
// CHECK-LABEL: func.func @widens
// CHECK: logical.matmul {{.*}} {transpose_b, widening
// CUDA-LABEL: func.func @widens
// CUDA: %wide.lhs.wide = logical.cast %x
// CUDA-NEXT: %wide.rhs.wide = logical.cast %w
// CUDA-NEXT: logical.matmul %wide.lhs.wide, %wide.rhs.wide {transpose_b
// CUDA: logical.matmul %x, %v {aicf.id = "narrow"
// EMIT: emit.program @widens
// EMIT: emit.resolved "gemm"{{.*}}name("wide")
// EMIT: kernel("cpu.gemm_avx512"{{.*}}pairs_of_k = true
// GPU: emit.program @widens
// GPU: emit.resolved "gemm"{{.*}}name("wide")
// GPU: kernel("cuda.gemm_simt"
func.func @widens(%x : tensor<5x70xi8> {logical.name = "x", logical.role = "input"}, %w : tensor<9x70xui8> {logical.name = "short", logical.role = "param"}, %v : tensor<70x9xi8> {logical.name = "v", logical.role = "param"}) -> (tensor<5x9xi32> {logical.name = "y"}, tensor<5x9xi8> {logical.name = "z"}) {
  %wide = logical.matmul %x, %w {widening, transpose_b} : (tensor<5x70xi8>, tensor<9x70xui8>) -> tensor<5x9xi32>
  %narrow = logical.matmul %x, %v : (tensor<5x70xi8>, tensor<70x9xi8>) -> tensor<5x9xi8>
  func.return %wide, %narrow : tensor<5x9xi32>, tensor<5x9xi8>
}

// A recurrent layer is one op where a kernel runs all steps, with a copy of an input whose rows are not contiguous.
// KEPT-LABEL: func.func @layer
// KEPT: logical.lstm
// CHECK-LABEL: func.func @layer
// CHECK: emit.group "turned" from ["turned"]
// CHECK: %l = logical.lstm
// CUDA-LABEL: func.func @layer
// CUDA-NOT: logical.lstm
// CUDA: aicf.id = "l.product_1"
// FORBID-LABEL: func.func @layer
// FORBID-NOT: logical.lstm
// FORBID: aicf.id = "l.product"
// FORBID: aicf.id = "l.product_1"
// EMIT: emit.program @layer
// EMIT: emit.resolved "copy"{{.*}}name("turned")
// EMIT: emit.resolved "lstm"{{.*}}name("l")
func.func @layer(%x : tensor<2x64x3xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<64x16xf32> {logical.name = "u", logical.role = "param"}, %f : tensor<2x3x16xf32> {logical.name = "f", logical.role = "input"}) -> (tensor<2x2x3x16xf32> {logical.name = "r"}) {
  %turned = logical.transpose %x {permutation = [0, 2, 1]} : tensor<2x64x3xf32> -> tensor<2x3x64xf32>
  %l = logical.lstm %turned, %w, %f : (tensor<2x3x64xf32>, tensor<64x16xf32>, tensor<2x3x16xf32>) -> tensor<2x2x3x16xf32>
  func.return %l : tensor<2x2x3x16xf32>
}

// Many updates of few rows, such as the gradient of an embedding of token types, are one sum on a GPU.
// CHECK-LABEL: func.func @adds
// CHECK: logical.scatter_combine
// CUDA-LABEL: func.func @adds
// CUDA-NOT: logical.scatter_combine
// CUDA: %few.add.masked = logical.select
// CUDA-NEXT: %few.add.sum = logical.reduce_sum %few.add.masked {axes = [1]
// GPU: emit.program @adds
// GPU: emit.resolved "generated"{{.*}}name("few")
// GPU-NOT: emit.resolved
func.func @adds(%x : tensor<2x768xf32> {logical.name = "x", logical.role = "input"}, %i : tensor<4096xi64> {logical.name = "i", logical.role = "input"}, %d : tensor<4096x768xf32> {logical.name = "d", logical.role = "input"}) -> (tensor<2x768xf32> {logical.name = "y"}) {
  %few = logical.scatter %x, %i, %d {mode = "add"} : (tensor<2x768xf32>, tensor<4096xi64>, tensor<4096x768xf32>) -> tensor<2x768xf32>
  func.return %few : tensor<2x768xf32>
}
