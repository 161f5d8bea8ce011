// RUN: aicf-opt %s -p read-packed-weights,logical-dce | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{packed_activations: int8}"},assign-ids,lower-precision,read-packed-weights' | filecheck %s --check-prefix=INT8
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{rounding: strict}"},read-packed-weights' | filecheck %s --check-prefix=STRICT

// CHECK: emit.decision "read-packed-weights" ["w", "m"] choice "product of packed rows" because "where the target has kernels for it, they widen blocks in registers, and read the fewest bytes" rejected {"widened weight" = "all of it would be written and read again"}
// CHECK: emit.decision "read-packed-weights" ["w", "e"] choice "gather of packed rows" because "only the rows that are read are widened"

// CHECK: emit.decision "read-packed-weights" ["g", "y.chosen"] choice "product of chosen packed matrices" because "where the target has kernels for it, they read the matrices that are chosen, and no others"

// CHECK-LABEL: func.func @tied
func.func @tied(%x : tensor<2x64xf32> {logical.role = "input"}, %i : tensor<4xi64> {logical.role = "input"}, %p : tensor<9x40xui8> {logical.role = "param"}) -> (tensor<2x9xf32>, tensor<4x64xf32>) {
  %w = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "w", aicf.src = ["w"]} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  // CHECK-NEXT: %m = logical.matmul_blocks %x, %p {scheme = "Q4_1", aicf.id = "m", aicf.src = ["m", "w"]} : (tensor<2x64xf32>, tensor<9x40xui8>) -> tensor<2x9xf32>
  %m = logical.matmul %x, %w {transpose_b, aicf.id = "m", aicf.src = ["m"]} : (tensor<2x64xf32>, tensor<9x64xf32>) -> tensor<2x9xf32>
  // CHECK-NEXT: %0 = logical.gather %p, %i {axis = 0, aicf.id = "e.packed", aicf.src = ["e"]} : (tensor<9x40xui8>, tensor<4xi64>) -> tensor<4x40xui8>
  // CHECK-NEXT: %e = logical.dequantize_blocks %0 {scheme = "Q4_1", aicf.id = "e", aicf.src = ["e", "w"]} : (tensor<4x40xui8>) -> tensor<4x64xf32>
  %e = logical.gather %w, %i {axis = 0, aicf.id = "e", aicf.src = ["e"]} : (tensor<9x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
  func.return %m, %e : tensor<2x9xf32>, tensor<4x64xf32>
}

// Matrices that are gathered are read where they lie; one column may be that of all of them.
// CHECK-LABEL: func.func @chosen
func.func @chosen(%x : tensor<64x1xf32> {logical.role = "input"}, %i : tensor<1x2xi64> {logical.role = "input"}, %p : tensor<5x9x40xui8> {logical.role = "param"}) -> tensor<1x2x9x1xf32> {
  %e = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "experts", aicf.src = ["experts"]} : (tensor<5x9x40xui8>) -> tensor<5x9x64xf32>
  %g = logical.gather %e, %i {axis = 0, aicf.id = "g", aicf.src = ["g"]} : (tensor<5x9x64xf32>, tensor<1x2xi64>) -> tensor<1x2x9x64xf32>
  // CHECK-NEXT: %y.rows = logical.reshape %x {aicf.id = "y.rows", aicf.src = ["y"]} : tensor<64x1xf32> -> tensor<64xf32>
  // CHECK-NEXT: %y.each = logical.broadcast %y.rows {dimensions = [2], aicf.id = "y.each", aicf.src = ["y"]} : tensor<64xf32> -> tensor<1x2x64xf32>
  // CHECK-NEXT: %y.chosen = logical.matmul_blocks %y.each, %p, %i {scheme = "Q4_1", aicf.id = "y.chosen", aicf.src = ["y"]} : (tensor<1x2x64xf32>, tensor<5x9x40xui8>, tensor<1x2xi64>) -> tensor<1x2x9xf32>
  // CHECK-NEXT: %y = logical.reshape %y.chosen {aicf.id = "y", aicf.src = ["y"]} : tensor<1x2x9xf32> -> tensor<1x2x9x1xf32>
  %y = logical.matmul %g, %x {aicf.id = "y", aicf.src = ["y"]} : (tensor<1x2x9x64xf32>, tensor<64x1xf32>) -> tensor<1x2x9x1xf32>
  func.return %y : tensor<1x2x9x1xf32>
}

// Where a matrix meets columns of several batches, there is no row for each index.
// CHECK-LABEL: func.func @several
// CHECK: logical.matmul %g, %x
func.func @several(%x : tensor<3x2x64x1xf32> {logical.role = "input"}, %i : tensor<1x2xi64> {logical.role = "input"}, %p : tensor<5x9x40xui8> {logical.role = "param"}) -> tensor<3x2x9x1xf32> {
  %e = logical.dequantize_blocks %p {scheme = "Q4_1"} : (tensor<5x9x40xui8>) -> tensor<5x9x64xf32>
  %g = logical.gather %e, %i {axis = 0, aicf.id = "several.g", aicf.src = ["several.g"]} : (tensor<5x9x64xf32>, tensor<1x2xi64>) -> tensor<1x2x9x64xf32>
  %y = logical.matmul %g, %x {aicf.id = "several.y", aicf.src = ["several.y"]} : (tensor<1x2x9x64xf32>, tensor<3x2x64x1xf32>) -> tensor<3x2x9x1xf32>
  func.return %y : tensor<3x2x9x1xf32>
}

// Where the policy says so, activations are rounded to 8 bits; not next to codes that are floats.
// INT8: emit.decision "read-packed-weights" ["w", "m"] choice "product of packed rows and activations of 8 bits" because "the policy says packed_activations"
// INT8: because "the codes of E4M3_32 are floats, so activations stay f32"
// INT8: emit.decision "read-packed-weights" ["narrow.w", "narrow.m"] choice "product of packed rows" because "only f32 activations are rounded to 8 bits, so these stay bf16"
// INT8: ["chosen.g.widened", "chosen.y.chosen"] choice "product of chosen packed matrices" because "{{.*}}; activations stay bf16, as no kernel rounds them for chosen matrices"
// INT8: emit.decision "read-packed-weights" ["w_2", "m_2"] choice "activations stay f32" because "the weight is widened: packed rows are for the transpose of one matrix on the right, and for matrices that indices choose, with a column each"
// INT8: ["double.w", "double.m"] choice "activations stay f64" because "only f32 activations are rounded to 8 bits"
// INT8: ["whole.w", "whole.m"] choice "activations stay i32" because "only f32 activations are rounded to 8 bits"
// INT8-NOT: packed_activations has no effect
// INT8: %m = logical.rounded_matmul_blocks %x, %p {scheme = "Q4_1"
// INT8: logical.matmul_blocks %x, %p {scheme = "E4M3_32"

func.func @floats(%x : tensor<2x64xf32> {logical.role = "input"}, %p : tensor<9x72xui8> {logical.role = "param"}) -> tensor<2x9xf32> {
  %w = logical.dequantize_blocks %p {scheme = "E4M3_32"} : (tensor<9x72xui8>) -> tensor<9x64xf32>
  %m = logical.matmul %x, %w {transpose_b} : (tensor<2x64xf32>, tensor<9x64xf32>) -> tensor<2x9xf32>
  func.return %m : tensor<2x9xf32>
}

// Rows that are not contracted, and elements of a row, need the widened weight.
// CHECK-LABEL: func.func @widened
func.func @widened(%x : tensor<2x9xf32> {logical.role = "input"}, %i : tensor<4xi64> {logical.role = "input"}, %p : tensor<9x40xui8> {logical.role = "param"}) -> (tensor<2x64xf32>, tensor<9x4xf32>) {
  // CHECK-NEXT: %w = logical.dequantize_blocks %p
  %w = logical.dequantize_blocks %p {scheme = "Q4_1"} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  // CHECK-NEXT: %m = logical.matmul %x, %w
  %m = logical.matmul %x, %w : (tensor<2x9xf32>, tensor<9x64xf32>) -> tensor<2x64xf32>
  // CHECK-NEXT: %e = logical.gather %w, %i {axis = 1}
  %e = logical.gather %w, %i {axis = 1} : (tensor<9x64xf32>, tensor<4xi64>) -> tensor<9x4xf32>
  func.return %m, %e : tensor<2x64xf32>, tensor<9x4xf32>
}

// A narrow product reads the blocks too, and its weight is not rounded to the narrow type, unless rounding is strict.
// CHECK-LABEL: func.func @narrow
// STRICT-LABEL: func.func @narrow
func.func @narrow(%x : tensor<2x64xbf16> {logical.role = "input"}, %i : tensor<4xi64> {logical.role = "input"}, %p : tensor<9x40xui8> {logical.role = "param"}) -> (tensor<2x9xbf16>, tensor<4x64xbf16>) {
  %w = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "narrow.w", aicf.src = ["narrow.w"]} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  %c = logical.cast %w {aicf.id = "narrow.c", aicf.src = ["narrow.c"]} : tensor<9x64xf32> -> tensor<9x64xbf16>
  // CHECK-NEXT: %m = logical.matmul_blocks %x, %p {scheme = "Q4_1", aicf.id = "narrow.m"{{.*}}} : (tensor<2x64xbf16>, tensor<9x40xui8>) -> tensor<2x9xbf16>
  // STRICT: %m = logical.matmul %x, %c
  %m = logical.matmul %x, %c {transpose_b, aicf.id = "narrow.m", aicf.src = ["narrow.m"]} : (tensor<2x64xbf16>, tensor<9x64xbf16>) -> tensor<2x9xbf16>
  // CHECK-NEXT: %0 = logical.gather %p, %i
  // CHECK-NEXT: %1 = logical.dequantize_blocks %0 {scheme = "Q4_1", aicf.id = "narrow.e.widened"
  // CHECK-NEXT: %e = logical.cast %1 {aicf.id = "narrow.e"
  %e = logical.gather %c, %i {axis = 0, aicf.id = "narrow.e", aicf.src = ["narrow.e"]} : (tensor<9x64xbf16>, tensor<4xi64>) -> tensor<4x64xbf16>
  func.return %m, %e : tensor<2x9xbf16>, tensor<4x64xbf16>
}

// Chosen matrices of a narrow product are read where they lie, too.
// CHECK-LABEL: func.func @narrow_chosen
// STRICT-LABEL: func.func @narrow_chosen
func.func @narrow_chosen(%x : tensor<2x64x1xbf16> {logical.role = "input"}, %i : tensor<2xi64> {logical.role = "input"}, %p : tensor<5x9x40xui8> {logical.role = "param"}) -> tensor<2x9x1xbf16> {
  %w = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "chosen.w", aicf.src = ["chosen.w"]} : (tensor<5x9x40xui8>) -> tensor<5x9x64xf32>
  %c = logical.cast %w {aicf.id = "chosen.c", aicf.src = ["chosen.c"]} : tensor<5x9x64xf32> -> tensor<5x9x64xbf16>
  %g = logical.gather %c, %i {axis = 0, aicf.id = "chosen.g", aicf.src = ["chosen.g"]} : (tensor<5x9x64xbf16>, tensor<2xi64>) -> tensor<2x9x64xbf16>
  // CHECK-NOT: logical.cast
  // CHECK: logical.matmul_blocks %{{.*}}, %p, %i {scheme = "Q4_1", aicf.id = "chosen.y.chosen"{{.*}}} : (tensor<2x64xbf16>, tensor<5x9x40xui8>, tensor<2xi64>) -> tensor<2x9xbf16>
  // STRICT: logical.gather %p, %i
  // STRICT: logical.matmul %{{.*}}, %x
  %y = logical.matmul %g, %x {aicf.id = "chosen.y", aicf.src = ["chosen.y"]} : (tensor<2x9x64xbf16>, tensor<2x64x1xbf16>) -> tensor<2x9x1xbf16>
  func.return %y : tensor<2x9x1xbf16>
}

// Products of other types read the widened weight; a gather takes any cast along.
// CHECK-LABEL: func.func @other_types
func.func @other_types(%x : tensor<2x64xf64> {logical.role = "input"}, %n : tensor<2x64xi32> {logical.role = "input"}, %i : tensor<4xi64> {logical.role = "input"}, %p : tensor<9x40xui8> {logical.role = "param"}) -> (tensor<2x9xf64>, tensor<2x9xi32>, tensor<4x64xf64>) {
  %w = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "double.w", aicf.src = ["double.w"]} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  %c = logical.cast %w {aicf.id = "double.c", aicf.src = ["double.c"]} : tensor<9x64xf32> -> tensor<9x64xf64>
  // CHECK: %m = logical.matmul %x, %c {transpose_b
  %m = logical.matmul %x, %c {transpose_b, aicf.id = "double.m", aicf.src = ["double.m"]} : (tensor<2x64xf64>, tensor<9x64xf64>) -> tensor<2x9xf64>
  %v = logical.dequantize_blocks %p {scheme = "Q4_1", aicf.id = "whole.w", aicf.src = ["whole.w"]} : (tensor<9x40xui8>) -> tensor<9x64xf32>
  %d = logical.cast %v {aicf.id = "whole.c", aicf.src = ["whole.c"]} : tensor<9x64xf32> -> tensor<9x64xi32>
  // CHECK: %q = logical.matmul %n, %d {transpose_b
  %q = logical.matmul %n, %d {transpose_b, aicf.id = "whole.m", aicf.src = ["whole.m"]} : (tensor<2x64xi32>, tensor<9x64xi32>) -> tensor<2x9xi32>
  // CHECK: logical.gather %p, %i
  // CHECK: %e = logical.cast {{.*}} -> tensor<4x64xf64>
  %e = logical.gather %c, %i {axis = 0, aicf.id = "double.e", aicf.src = ["double.e"]} : (tensor<9x64xf64>, tensor<4xi64>) -> tensor<4x64xf64>
  func.return %m, %q, %e : tensor<2x9xf64>, tensor<2x9xi32>, tensor<4x64xf64>
}
