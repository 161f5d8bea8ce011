// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'set-target{target="cpu:x86-64-v3"},lower-to-emit' | filecheck %s

// A group without a kernel is undecided.
// CHECK: error: group 'exp' has no kernel; run select-kernels first
func.func @undecided(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %e = emit.group "exp" from ["exp"] ins(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) {
    %1 = logical.exp %a : tensor<4xf32>
    emit.yield %1 : tensor<4xf32>
  }
  func.return %e : tensor<4xf32>
}

// -----

// An op outside any group would be lost.
// CHECK: error: logical.exp is outside any group; run materialize-views and fuse-elementwise first
func.func @ungrouped(%x : tensor<4xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4xf32> {logical.name = "y"}) {
  %e = logical.exp %x : tensor<4xf32>
  func.return %e : tensor<4xf32>
}

// -----

// A kernel that the target does not have.
// CHECK: error: kernel 'gpu.gemm' is not one of backend 'cpu': cpu.
func.func @foreign(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}) {
  %m = emit.group "one" from ["one"] ins(%a = %x : tensor<4x8xf32>, %b = %w : tensor<8x8xf32>) -> (tensor<4x8xf32>) kernel("gpu.gemm", {version = 1 : i64, determinism = "bitwise", layouts = [unit, #emit.layout<"packed_b", {bytes = 256 : i64, k_dim = 0 : i64, nr = 8 : i64}>]}) {
    %1 = logical.matmul %a, %b : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  func.return %m : tensor<4x8xf32>
}
