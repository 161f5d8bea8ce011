// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,fuse-multi-output' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,fuse-multi-output,select-kernels,generate-kernels,lower-to-emit,schedule' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"determinism\": \"batch_invariant\", \"groups\": [[\"scaled\", \"total\", \"share\", \"input\", \"bias\"]]}"},fuse-elementwise,fuse-multi-output' | filecheck %s --check-prefix=BATCH

// CHECK: emit.decision "fuse-multi-output" ["bias", "scaled", "total", "share", "input", "weight.part", "weight"] choice "one kernel for 7 ops, 3 results"
// CHECK: emit.decision "fuse-multi-output" ["reader.rows", "reader.exp"] choice "not fused" {{.*}} rejected {"reader.columns + reader.log" = "cuda.generated: it is not one set of loops over all elements (reductions over different axes)"}
// CHECK: emit.decision "fuse-multi-output" ["long.rows"] choice "not fused" {{.*}} rejected {long.columns = "cuda.generated: rows of 65536 elements leave no registers for the sums of their columns"}
// CPU: emit.decision "fuse-multi-output" ["scaled"{{.*}} rejected {{.*}}cpu.generated: sums of columns beside sums of rows have no code on cpu
// BATCH: emit.decision "fuse-multi-output" {{.*}}the bits of a row may depend on the batch, and the policy wants them not to (determinism)

// A gradient whose rows are normalised, and the sums of its columns: those of what it reads and of what it computes.
// CHECK-LABEL: func.func @gradient
// CHECK-NEXT: %{{.*}}, %{{.*}}, %{{.*}} = emit.group "bias" from ["bias", "scaled", "input", "weight"]
// CHECK: emit.yield
// CHECK-NEXT: }

// The rows are swept twice; each sum is made where its values are known first.
// EMIT: emit.kernel @bias.code parallel [4096] reduce [768]
// EMIT: emit.phase -> f32 {
// EMIT: emit.reduce "sum"
// EMIT: emit.accumulate "sum" %dy, 0 : f32
// EMIT: emit.phase {
// EMIT: emit.store %{{.*}}, 1 : f32
// EMIT: emit.accumulate "sum" %{{.*}}, 2 : f32
// EMIT: emit.resolved "generated" id(24) name("bias")
// EMIT: kernel("cuda.generated", {{.*}}strategy = "column_sums"{{.*}}workspace_bytes
// CPU-LABEL: func.func @gradient
func.func @gradient(
    %x : tensor<4096x768xf32> {logical.name = "x", logical.role = "input"},
    %dy : tensor<4096x768xf32> {logical.name = "dy", logical.role = "input"},
    %g : tensor<768xf32> {logical.name = "g", logical.role = "param"})
    -> (tensor<4096x768xf32> {logical.name = "dx"}, tensor<768xf32> {logical.name = "dg"},
        tensor<768xf32> {logical.name = "db"}) {
  %gb = logical.broadcast %g {dimensions = [1]} : tensor<768xf32> -> tensor<4096x768xf32>
  %s = logical.mul %dy, %gb {aicf.id = "scaled", aicf.src = ["scaled"]} : tensor<4096x768xf32>
  %t = logical.reduce_sum %s {axes = [1], keepdims, aicf.id = "total", aicf.src = ["scaled"]} : tensor<4096x768xf32> -> tensor<4096x1xf32>
  %h = logical.neg %t {aicf.id = "share", aicf.src = ["scaled"]} : tensor<4096x1xf32>
  %hb = logical.broadcast %h {dimensions = [0, 1], aicf.id = "spread", aicf.src = ["scaled"]} : tensor<4096x1xf32> -> tensor<4096x768xf32>
  %dx = logical.add %s, %hb {aicf.id = "input", aicf.src = ["input"]} : tensor<4096x768xf32>
  %wp = logical.mul %dx, %x {aicf.id = "weight.part", aicf.src = ["weight"]} : tensor<4096x768xf32>
  %dg = logical.reduce_sum %wp {axes = [0], aicf.id = "weight", aicf.src = ["weight"]} : tensor<4096x768xf32> -> tensor<768xf32>
  %db = logical.reduce_sum %dy {axes = [0], aicf.id = "bias", aicf.src = ["bias"]} : tensor<4096x768xf32> -> tensor<768xf32>
  func.return %dx, %dg, %db : tensor<4096x768xf32>, tensor<768xf32>, tensor<768xf32>
}

// Rows that the sum sees as one dim, as the bias of a product before a norm does: it sums the rows that there are.
// CHECK-LABEL: func.func @merged_rows
// CHECK: emit.group "merged.total" from ["merged.total", "merged.bias"]
// CHECK: func.return
// EMIT: emit.kernel @merged.total.code parallel [128, 128] reduce [768]
// EMIT: emit.accumulate "sum" %{{.*}}, 1 : bf16
func.func @merged_rows(
    %x : tensor<128x128x768xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<128x128x768xbf16> {logical.name = "y"}, tensor<768xbf16> {logical.name = "bias"}) {
  %t = logical.reduce_sum %x {axes = [2], keepdims, aicf.id = "merged.total", aicf.src = ["merged.total"]} : tensor<128x128x768xf32> -> tensor<128x128x1xf32>
  %tb = logical.broadcast %t {dimensions = [0, 1, 2], aicf.id = "merged.spread", aicf.src = ["merged.total"]} : tensor<128x128x1xf32> -> tensor<128x128x768xf32>
  %d = logical.sub %x, %tb {aicf.id = "merged.sub", aicf.src = ["merged.total"]} : tensor<128x128x768xf32>
  %y = logical.cast %d {aicf.id = "merged.narrow", aicf.src = ["merged.total"]} : tensor<128x128x768xf32> -> tensor<128x128x768xbf16>
  %v = logical.reshape %y {aicf.id = "merged.view", aicf.src = ["merged.bias"]} : tensor<128x128x768xbf16> -> tensor<16384x768xbf16>
  %b = logical.reduce_sum %v {axes = [0], aicf.id = "merged.bias", aicf.src = ["merged.bias"]} : tensor<16384x768xbf16> -> tensor<768xbf16>
  func.return %y, %b : tensor<128x128x768xbf16>, tensor<768xbf16>
}

// What is computed with both sums has to wait for the last row: two kernels.
// CHECK-LABEL: func.func @both_read
// CHECK: emit.group "reader.rows"
// CHECK: emit.group "reader.columns"
func.func @both_read(
    %x : tensor<4096x768xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<4096xf32> {logical.name = "rows"}, tensor<768xf32> {logical.name = "columns"}) {
  %r = logical.reduce_sum %x {axes = [1], aicf.id = "reader.rows", aicf.src = ["reader.rows"]} : tensor<4096x768xf32> -> tensor<4096xf32>
  %q = logical.exp %r {aicf.id = "reader.exp", aicf.src = ["reader.rows"]} : tensor<4096xf32>
  %c = logical.reduce_sum %x {axes = [0], aicf.id = "reader.columns", aicf.src = ["reader.columns"]} : tensor<4096x768xf32> -> tensor<768xf32>
  %d = logical.exp %c {aicf.id = "reader.log", aicf.src = ["reader.columns"]} : tensor<768xf32>
  func.return %q, %d : tensor<4096xf32>, tensor<768xf32>
}

// Rows that a block does not hold are read again, and their columns with others' rows.
// CHECK-LABEL: func.func @long_rows
func.func @long_rows(
    %x : tensor<64x65536xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<64xf32> {logical.name = "rows"}, tensor<65536xf32> {logical.name = "columns"}) {
  %r = logical.reduce_sum %x {axes = [1], aicf.id = "long.rows", aicf.src = ["long.rows"]} : tensor<64x65536xf32> -> tensor<64xf32>
  %c = logical.reduce_sum %x {axes = [0], aicf.id = "long.columns", aicf.src = ["long.columns"]} : tensor<64x65536xf32> -> tensor<65536xf32>
  func.return %r, %c : tensor<64xf32>, tensor<65536xf32>
}
