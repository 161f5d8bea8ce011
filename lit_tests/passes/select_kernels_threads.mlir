// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3" threads=4},select-kernels' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels' | filecheck %s --check-prefix=ALONE

// Threads meet before and after what they share: small instructions have one, large ones all that the target gives. The
// ledger has what the other choice was predicted to take.
// CHECK: emit.decision "select-kernels" ["small"] choice "cpu.gemm_avx2" {{.*}}"4 threads" = "predicted {{[0-9.]+}} us, not
// CHECK-NEXT: emit.decision "select-kernels" ["large"] choice "cpu.gemm_avx2" {{.*}}"1 thread" = "predicted
// CHECK-NEXT: emit.decision "select-kernels" ["point"] choice "cpu.generated" {{.*}}"4 threads" = "predicted
// CHECK-NEXT: emit.decision "select-kernels" ["points"] choice "cpu.generated" {{.*}}"1 thread" = "predicted
// CHECK: emit.group "small" {{.*}} threads = 1 : i64
// CHECK: emit.group "large" {{.*}} partition = "columns", threads = 4 : i64
// CHECK: emit.group "point" {{.*}} threads = 1 : i64, partition_dim = -1 : i64
// CHECK: emit.group "points" {{.*}} threads = 4 : i64, partition_dim = 0 : i64

// One thread weighs nothing.
// ALONE-NOT: thread" =
// ALONE-NOT: threads" =
func.func @f(
    %a : tensor<4x64xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<512x512xf32> {logical.name = "b", logical.role = "input"},
    %c : tensor<64x64xf32> {logical.name = "c", logical.role = "input"}) -> (tensor<4x64xf32> {logical.name = "y"}, tensor<512x512xf32> {logical.name = "z"}) {
  %s = emit.group "small" from ["small"] ins(%x = %a : tensor<4x64xf32>, %w = %c : tensor<64x64xf32>) -> (tensor<4x64xf32>) {
    %1 = logical.matmul %x, %w {aicf.id = "small"} : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
    emit.yield %1 : tensor<4x64xf32>
  }
  %l = emit.group "large" from ["large"] ins(%x = %b : tensor<512x512xf32>, %w = %b : tensor<512x512xf32>) -> (tensor<512x512xf32>) {
    %1 = logical.matmul %x, %w {aicf.id = "large"} : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
    emit.yield %1 : tensor<512x512xf32>
  }
  %p = emit.group "point" from ["point"] ins(%x = %s : tensor<4x64xf32>) -> (tensor<4x64xf32>) {
    %1 = logical.exp %x {aicf.id = "point"} : tensor<4x64xf32>
    emit.yield %1 : tensor<4x64xf32>
  }
  %q = emit.group "points" from ["points"] ins(%x = %l : tensor<512x512xf32>) -> (tensor<512x512xf32>) {
    %1 = logical.exp %x {aicf.id = "points"} : tensor<512x512xf32>
    emit.yield %1 : tensor<512x512xf32>
  }
  func.return %p, %q : tensor<4x64xf32>, tensor<512x512xf32>
}
