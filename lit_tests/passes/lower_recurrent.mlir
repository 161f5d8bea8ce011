// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,lower-logical' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,lower-logical,materialize-views,fuse-elementwise,select-kernels' | filecheck %s --check-prefix=KERNEL

// All steps are one op where a kernel runs them.
// CPU-LABEL: func.func @layer
// CPU: %y = logical.lstm %x, %w, %f {reverse
// CPU-NEXT: func.return %y

// Elsewhere each step is written: the last one first.
// CUDA-LABEL: func.func @layer
// CUDA: %[[H:.*]] = logical.slice %f {starts = [0, 0, 0]
// CUDA: logical.matmul %{{.*}}, %w {transpose_b, aicf.id = "y.product"
// CUDA-NEXT: logical.slice %x {starts = [1, 0, 0]
// CUDA: logical.matmul %{{.*}}, %w {transpose_b, aicf.id = "y.product_1"
// CUDA-NEXT: logical.slice %x {starts = [0, 0, 0]
// CUDA-NOT: logical.lstm
// CUDA: logical.concat
// CUDA-NEXT: logical.reshape

// Sums are split where one row would wait for each multiply-add. A weight is packed ahead, a panel a vector.
// KERNEL: emit.group "y"
// KERNEL-SAME: kernel("cpu.lstm", {version = 1 : i64, determinism = "bitwise", reverse = true, lanes = 8 : i64, tile_rows = 1 : i64, k_split = 2 : i64, b_source = "packed", threads = 1 : i64, combination_order = "ascending k in 2 strided sums, added pairwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 4096 : i64, k_dim = 1 : i64, nr = 8 : i64}>, unit]
func.func @layer(
    %x : tensor<2x1x64xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<64x16xf32> {logical.name = "w", logical.role = "param"},
    %f : tensor<2x1x16xf32> {logical.name = "f", logical.role = "input"}) -> (tensor<2x2x1x16xf32> {logical.name = "r"}) {
  %y = logical.lstm %x, %w, %f {reverse} : (tensor<2x1x64xf32>, tensor<64x16xf32>, tensor<2x1x16xf32>) -> tensor<2x2x1x16xf32>
  func.return %y : tensor<2x2x1x16xf32>
}
