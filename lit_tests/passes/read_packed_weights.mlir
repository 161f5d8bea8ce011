// RUN: aicf-opt %s -p read-packed-weights,logical-dce | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{packed_activations: int8}"},assign-ids,lower-precision,read-packed-weights' | filecheck %s --check-prefix=INT8

// CHECK: emit.decision "read-packed-weights" ["w", "m"] choice "product of packed rows" because "where the target has kernels for it, they widen blocks in registers, and read the fewest bytes" rejected {"widened weight" = "all of it would be written and read again"}
// CHECK: emit.decision "read-packed-weights" ["w", "e"] choice "gather of packed rows" because "only the rows that are read are widened"

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

// Where the policy says so, activations are rounded to 8 bits; not next to codes that are floats.
// INT8: emit.decision "read-packed-weights" ["w", "m"] choice "product of packed rows and activations of 8 bits" because "the policy says packed_activations"
// INT8: because "the codes of E4M3_32 are floats, so activations stay f32"
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
