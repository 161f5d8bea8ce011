// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"}' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{records: {same: {algorithm: winograd, output_tile: 2}}}"}' | filecheck %s --check-prefix=TWO
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{records: {same: {algorithm: direct}}}"}' | filecheck %s --check-prefix=DIRECT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{rounding: strict}"}' | filecheck %s --check-prefixes=STRICT,DIRECT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{determinism: batch_invariant}"}' | filecheck %s --check-prefix=DIRECT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{conv: direct}"}' | filecheck %s --check-prefix=DIRECT
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{conv: winograd}"}' | filecheck %s --check-prefix=WISH
// RUN: not aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3" policy="{records: {apart: {algorithm: winograd}}}"}' 2>&1 | filecheck %s --check-prefix=APART

// Windows of 3 x 3 next to each other are transformed, with a weight that was transformed in @prepare.
// CHECK: emit.decision "select-kernels" ["same"] choice "cpu.conv_avx2" because "lowest predicted time; unmeasured" rejected {{{.*}}"winograd 2x2" = "predicted {{.*}} us, not {{.*}}", direct = "predicted {{.*}} us, not {{.*}}"
// CHECK: emit.decision "select-kernels" ["apart"] choice "cpu.conv_avx2" {{.*}}cpu.conv_portable = "predicted {{[0-9.e+]*}} us, not {{[0-9.e+]*}}"} cost
// CHECK-LABEL: emit.program @prepare
// CHECK: emit.bind derived "w:winograd_weight" : !emit.buffer<64x64x3x3xf32, const, layout #emit.layout<"winograd_weight", {bytes = 589824 : i64, nr = 16 : i64, output_tile = 4 : i64}>>
// CHECK: emit.resolved "pack" id(26) name("w:winograd_weight")
// CHECK: kernel("cpu.pack_winograd", {version = 1 : i64, determinism = "bitwise", lanes = 4 : i64, threads = 1 : i64, nr = 16 : i64, output_tile = 4 : i64})
// CHECK-LABEL: emit.program @f
// CHECK: emit.resolved "conv" {{.*}} name("same")
// CHECK: kernel("cpu.conv_avx2", {{.*}}algorithm = "winograd", output_tile = 4 : i64, {{.*}}combination_order = "Winograd F(4x4, 3x3): transformed tiles in ascending channel, then rows and columns of the tile"{{.*}}winograd = {block_rows = 4 : i64, product = {lanes = 8 : i64, tile_rows = 6 : i64, tile_vectors = 2 : i64,

// Those of every other pixel are not.
// CHECK: emit.resolved "conv" {{.*}} name("apart")
// CHECK: kernel("cpu.conv_avx2", {{.*}}algorithm = "direct", output_tile = 0 : i64

// A policy takes another tile; or, as strict rounding and results that no batch changes do, none.
// STRICT: ["same"] choice "cpu.conv_avx2" {{.*}}winograd = "the policy wants strict rounding, and sums of transformed numbers round otherwise"
// TWO: name("same")
// TWO: algorithm = "winograd", output_tile = 2 : i64
// DIRECT: name("same")
// DIRECT: algorithm = "direct", output_tile = 0 : i64
// WISH: ["same"] choice "cpu.conv_avx2" because "policy prefers winograd (conv)"
// WISH: ["apart"] choice "cpu.conv_avx2" because "lowest predicted time; unmeasured; conv: winograd is not offered for it"
// APART: records.apart.algorithm: 'cpu.conv_avx2' does not offer winograd; it offers direct
func.func @f(%x : tensor<1x64x16x16xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<64x64x3x3xf32> {logical.name = "w", logical.role = "param"}, %v : tensor<64x64x3x3xf32> {logical.name = "v", logical.role = "param"}) -> (tensor<1x64x8x8xf32> {logical.name = "y"}) {
  %same = logical.conv %x, %w {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x64x16x16xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x16x16xf32>
  %apart = logical.conv %same, %v {strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1} : (tensor<1x64x16x16xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x8x8xf32>
  func.return %apart : tensor<1x64x8x8xf32>
}
