// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical' | filecheck %s --check-prefix=KEPT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,lower-logical,lower-poolings' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=FINAL
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s --check-prefix=CUDA

// What a kernel of the target takes stays one op, and becomes one instruction. Long rows it does not take, and the ledger
// says so; a target without such kernels has windows from the start.
// KEPT: logical.max_pool %x
// KEPT: logical.avg_pool %h
// KEPT: logical.reduce_sum %l.windows
// CHECK: emit.decision "lower-poolings" ["a"] choice "as a reduction of windows" because "cpu.pool: its rows are longer than 4096 elements
// CHECK: %m = logical.max_pool %x
// CHECK-NOT: logical.avg_pool
// CHECK: %a.windows = logical.window
// FINAL: emit.resolved "pool" id(39) name("m")
// FINAL: attrs {mode = "max", count_include_pad = false, size_0 = 3 : i64
// FINAL: kernel("cpu.pool"
// CUDA-NOT: "pool"
// CUDA: emit.resolved {{.*}} name("m")
func.func @pools(%x : tensor<1x3x9x40xf32> {logical.name = "x", logical.role = "input"}, %h : tensor<1x3x5000xf32> {logical.name = "h", logical.role = "input"}) -> (tensor<1x3x5x20xf32> {logical.name = "m"}, tensor<1x3x2500xf32> {logical.name = "a"}, tensor<1x3x4x20xf32> {logical.name = "l"}) {
  %m = logical.max_pool %x {sizes = [3, 3], strides = [2, 2], dilations = [1, 1], low = [1, 1], high = [1, 1]} : tensor<1x3x9x40xf32> -> tensor<1x3x5x20xf32>
  %a = logical.avg_pool %h {sizes = [3], strides = [2], dilations = [1], low = [1], high = [1]} : tensor<1x3x5000xf32> -> tensor<1x3x2500xf32>
  %l = logical.lp_pool %x {p = 1, sizes = [2, 2], strides = [2, 2], dilations = [1, 1], low = [0, 0], high = [0, 0]} : tensor<1x3x9x40xf32> -> tensor<1x3x4x20xf32>
  func.return %m, %a, %l : tensor<1x3x5x20xf32>, tensor<1x3x2500xf32>, tensor<1x3x4x20xf32>
}
