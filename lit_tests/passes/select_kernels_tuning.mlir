// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels{tuning="%S/Inputs/tuning.json"}' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{measurements: warm}"},select-kernels{tuning="%S/Inputs/tuning.json"}' | filecheck %s --check-prefix=WARM
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v2"},select-kernels{tuning="%S/Inputs/tuning.json"}' 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels{tuning="%S/Inputs/none.json"}' 2>&1 | filecheck %s --check-prefix=NONE

// Where the table has rows, the lowest measured time wins, and the ledger has all times.
// CHECK: emit.decision "select-kernels" ["module"] choice "times measured on a processor" because "option tuning"
// CHECK: emit.decision "select-kernels" ["fc@N=4"] choice "cpu.gemm_portable" because "lowest measured time, cold: tile_rows=4 k_split=1"
// CHECK-SAME: "cpu.gemm_avx2 tile_rows=4 k_split=2" = "measured 4.31 us, not 3.92"
// CHECK-SAME: cost {expected_us = 3.920000e+00 : f64, cold_us = 3.920000e+00 : f64, warm_us = 2.000000e+00 : f64, tuning_key = "{{[0-9a-f]+}}"}

// Elsewhere the prediction decides, and the ledger says so.
// CHECK: ["fc@N=64"] choice "cpu.gemm_avx2" because "lowest predicted time; unmeasured"

// WARM: ["fc@N=4"] choice "cpu.gemm_avx2" because "lowest measured time, warm: tile_rows=4 k_split=2"
// WARM-SAME: "cpu.gemm_portable tile_rows=4 k_split=1" = "measured 2 us, not 1"

// TARGET: error: tuning: the table was measured on a processor with target cpu:x86-64-v3, this program is for target cpu:x86-64-v2; measure again on the device: aicf tune MODEL --target cpu:x86-64-v2 -o tuning.json
// NONE: none.json: error: the tuning table cannot be read: {{.*}}; `aicf tune MODEL -o
func.func @"f@N=4"(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4x8xf32> {logical.name = "y"}, tensor<4x8xf32> {logical.name = "z"}) {
  %m = emit.group "fc@N=4" from ["fc"] ins(%a = %x : tensor<4x8xf32>, %b = %w : tensor<8x8xf32>) -> (tensor<4x8xf32>) {
    %1 = logical.matmul %a, %b {aicf.id = "fc.matmul@N=4"} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  %n = emit.group "exp" from ["exp"] ins(%a = %m : tensor<4x8xf32>) -> (tensor<4x8xf32>) {
    %1 = logical.exp %a {aicf.id = "exp"} : tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  %k = emit.group "kept" from ["kept"] ins(%a = %m : tensor<4x8xf32>) -> (tensor<4x8xf32>) kernel("cpu.generated", {version = 7 : i64, determinism = "unordered"}) {
    %1 = logical.exp %a {aicf.id = "kept"} : tensor<4x8xf32>
    emit.yield %1 : tensor<4x8xf32>
  }
  func.return %n, %k : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func @"f@N=64"(
    %x : tensor<64x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<64x8xf32> {logical.name = "y"}) {
  %m = emit.group "fc@N=64" from ["fc"] ins(%a = %x : tensor<64x8xf32>, %b = %w : tensor<8x8xf32>) -> (tensor<64x8xf32>) {
    %1 = logical.matmul %a, %b {aicf.id = "fc.matmul@N=64"} : (tensor<64x8xf32>, tensor<8x8xf32>) -> tensor<64x8xf32>
    emit.yield %1 : tensor<64x8xf32>
  }
  func.return %m : tensor<64x8xf32>
}
