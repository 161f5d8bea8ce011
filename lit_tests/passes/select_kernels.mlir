// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},select-kernels' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v2"},select-kernels' | filecheck %s --check-prefix=V2
// RUN: aicf-opt %s -p 'set-target{target="reference"},select-kernels' | filecheck %s --check-prefix=REFERENCE
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"fc\": \"cpu.gemm_portable\"}}"},select-kernels' | filecheck %s --check-prefix=GROUP
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"fc@N=4\": \"cpu.gemm_portable\"}}"},select-kernels' | filecheck %s --check-prefix=BUCKET
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"gemm\": \"cpu.gemm_portable\"}}"},select-kernels' | filecheck %s --check-prefix=KIND
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"forbid\": [\"cpu.gemm_avx2\"]}"},select-kernels' | filecheck %s --check-prefix=FORBID
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"kepd\": \"cpu.gemm_avx2\"}}"},select-kernels' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"fc@N=5\": \"cpu.gemm_avx2\"}}"},select-kernels' 2>&1 | filecheck %s --check-prefix=NOBUCKET
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"groups\": [[\"fc.matmul\", \"exp\"]]}"},select-kernels' 2>&1 | filecheck %s --check-prefix=APART
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"kernels\": {\"fc\": \"cpu.gemm_avx512\"}}"},select-kernels' 2>&1 | filecheck %s --check-prefix=ILLEGAL
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{\"forbid\": [\"cpu.generated\"]}"},select-kernels' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{records: {fc@N=4: {tile_rows: 4}}}"},select-kernels' | filecheck %s --check-prefix=RECORD
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{kernels: {fc: cpu.gemm_avx2}, records: {fc: {k_split: 9}}}"},select-kernels' 2>&1 | filecheck %s --check-prefix=NORECORD
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{determinism: batch_invariant}"},select-kernels' | filecheck %s --check-prefix=INVARIANT
// RUN: not aicf-opt %s -p 'set-target{target="reference"},apply-policy{policy="{determinism: batch_invariant}"},select-kernels' 2>&1 | filecheck %s --check-prefix=VARIANT

// The cheapest legal kernel, with the reason against every other one; a group that has a kernel keeps it.
// CHECK: emit.decision "select-kernels" ["fc@N=4"] choice "cpu.gemm_avx2" because "lowest predicted time; unmeasured" rejected {{{.*}}cpu.gemm_avx512 = "needs cpu level x86-64-v4 (512-bit vectors), the target is x86-64-v3"{{.*}}cpu.gemm_portable = "predicted {{.*}} us, not {{.*}}"} cost {expected_us = {{.*}} : f64}
// CHECK-NEXT: emit.decision "select-kernels" ["exp"] choice "cpu.generated" because "the only legal kernel" cost
// CHECK-NEXT: emit.decision "select-kernels" ["fc@N=64"] choice "cpu.gemm_avx2"
// CHECK-NEXT: }
// CHECK: emit.group "fc@N=4" {{.*}} kernel("cpu.gemm_avx2", {version = 5 : i64, determinism = "bitwise", lanes = 8 : i64,
// CHECK: emit.group "exp" {{.*}} kernel("cpu.generated", {version = 2 : i64, determinism = "bitwise",
// CHECK: emit.group "kept" {{.*}} kernel("cpu.generated", {version = 7 : i64, determinism = "unordered"})
// CHECK: emit.group "fc@N=64" {{.*}} kernel("cpu.gemm_avx2",

// A lower level leaves fewer kernels.
// V2: ["fc@N=4"] choice "cpu.gemm_portable" because "the only legal kernel"
// V2-SAME: cpu.gemm_avx2 = "needs cpu level x86-64-v3 (256-bit vectors), the target is x86-64-v2"

// REFERENCE: emit.group "fc@N=4" {{.*}} kernel("reference.

// A policy names a group without its bucket for all buckets, with it for one, or a whole kind.
// GROUP: ["fc@N=4"] choice "cpu.gemm_portable" because "policy pins it for 'fc'"
// GROUP: ["fc@N=64"] choice "cpu.gemm_portable" because "policy pins it for 'fc'"
// BUCKET: ["fc@N=4"] choice "cpu.gemm_portable" because "policy pins it for 'fc@N=4'"
// BUCKET: ["fc@N=64"] choice "cpu.gemm_avx2" because "lowest predicted time
// KIND: ["fc@N=4"] choice "cpu.gemm_portable" because "policy pins it for 'gemm'"
// FORBID: ["fc@N=4"] choice "cpu.gemm_portable"
// FORBID-SAME: cpu.gemm_avx2 = "forbidden by policy (forbid)"

// What a policy names must be there, and must be possible.
// UNKNOWN: error: kernels.kepd: no group or kind has that name; did you mean 'kept'
// NOBUCKET: error: kernels.fc@N=5: no group or kind has that name; did you mean 'fc@N=4' or
// APART: error: groups[0]: its ops form no group together: 'fc.matmul' in 'fc@N=4', 'exp' in 'exp'; no kernel of the target runs them as one instruction; split or drop the entry
// ILLEGAL: error: kernels.fc: 'cpu.gemm_avx512' cannot run it: needs cpu level x86-64-v4 (512-bit vectors), the target is x86-64-v3; legal: cpu.gemm_avx2, cpu.gemm_portable
// NONE: error: no kernel of target cpu runs group 'exp' of kind generated: cpu.generated: forbidden by policy (forbid); split the group or choose another target

// A record is narrowed to what the policy states of it, of what kernels offer.
// RECORD: emit.group "fc@N=4" {{.*}}tile_rows = 4 : i64
// NORECORD: error: records.fc.k_split: 'cpu.gemm_avx2' does not offer 9; it offers {{.*}}; drop records.fc to leave the record to the kernel

// Where the batch may change no bits, every batch has one order, and the ledger says what that costs.
// INVARIANT: ["fc@N=4"] {{.*}} cost {expected_us = {{.*}} : f64, free_us = {{.*}} : f64}
// INVARIANT: emit.group "fc@N=4" {{.*}}k_split = 1 : i64{{.*}}combination_order = "ascending k"
// INVARIANT: emit.group "fc@N=64" {{.*}}k_split = 1 : i64{{.*}}combination_order = "ascending k"
// VARIANT: error: no kernel of target reference runs group 'fc@N=4' of kind gemm: reference.body: the bits of a row may depend on the batch, and the policy wants them not to (determinism)
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
