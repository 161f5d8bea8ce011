// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{precision: {to: int8, ranges: {fc1: [[-1, 3]], fc2: [[-1, 3]]}, corrections: {fc1: [0.5, 0.25, 1]}, accuracy: {ops: {fc1: 0.01}, errors: {y: 0.02}, samples: 7}}}"},assign-ids,lower-precision' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{to: bf16, ops: {y: f32}}"},assign-ids,lower-precision' | filecheck %s --check-prefix=BF16
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{to: bf16, ops: {fc2: int8}, ranges: {fc2: [[-1, 3]]}, activations: symmetric}"},assign-ids,lower-precision' | filecheck %s --check-prefix=MIXED
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{to: bf16}"},assign-ids,lower-precision,apply-policy{policy="{to: bf16}"},lower-precision' | filecheck %s --check-prefix=ONCE
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{to: bf16}"},assign-ids,lower-precision,apply-policy{policy="{to: f16}"}' 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{to: int8}"},assign-ids,lower-precision' 2>&1 | filecheck %s --check-prefix=RANGES

// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{to: fp8, rest: bf16, ranges: {fc1: [[-1, 3.5]], fc2: [[-1, 3.5]]}}"},assign-ids,lower-precision' | filecheck %s --check-prefix=FP8

// The integers of an operand that two products read are written once. Where is 0? At 64, of -1 to 3 in 256 steps.
// CHECK: aicf.lowered_precision = {{{.*}}to = "int8"
// CHECK: emit.decision "lower-precision" ["fc1"] choice "int8: u8 by i8" because "the policy lowers products to int8" cost {relative_error = 1.000000e-02 : f64}
// CHECK: emit.decision "lower-precision" ["module"] choice "model in int8" because "calibration compared it with f32 on 7 samples" cost {y = 2.000000e-02 : f64}
// CHECK: [[INVERSE:%[a-z0-9_.]+]] = logical.constant dense<63.7499962>
// CHECK-NEXT: logical.mul %x, [[INVERSE]]
// CHECK-NEXT: %fc1.lhs.whole = logical.round
// CHECK: %fc1.lhs.quantized = logical.cast %fc1.lhs.inside {{.*}} : tensor<4x8xf32> -> tensor<4x8xui8>
// CHECK: logical.constant dense<64> {{.*}} : tensor<4x8xi32>
// CHECK: logical.constant dense<0.0156862754>
// CHECK-NEXT: %fc1.lhs.dequantized = logical.mul
// CHECK: %fc1.rhs.largest = logical.reduce_max %fc1.rhs.magnitude {axes = [1]
// CHECK: %fc1.rhs.quantized = logical.cast %fc1.rhs.whole {{.*}} -> tensor<3x8xi8>
// CHECK: %fc1 = logical.linear %fc1.lhs.dequantized, %fc1.rhs.dequantized, %b
// CHECK-NEXT: %fc1.corrected = logical.add %fc1, %fc1.correction.broadcast
// CHECK-NOT: fc2.lhs
// CHECK: %fc2 = logical.linear %fc1.lhs.dequantized, %fc2.rhs.dequantized
// CHECK: logical.relu %fc1.corrected

// What reads narrow values is narrow, one cast serves all readers, and sums stay f32.
// BF16: emit.decision "lower-precision" ["fc1", "fc2", "r"] choice "bf16" because "the policy lowers the model to bf16"
// BF16: emit.decision "lower-precision" ["y"] choice "stays f32" because "the policy lists it so"
// BF16: emit.decision "lower-precision" ["s"] choice "stays f32" because "its results need the range or the precision of f32"
// BF16: %fc1 = logical.linear %fc1.operand0.bf16, %fc1.operand1.bf16, %fc1.operand2.bf16 {{.*}} -> tensor<4x3xbf16>
// BF16: %fc2 = logical.linear %fc1.operand0.bf16, %fc2.operand1.bf16
// BF16: %r = logical.relu %fc1 {{.*}} : tensor<4x3xbf16>
// BF16: %y = logical.add %r.f32, %fc2.f32 {{.*}} : tensor<4x3xf32>

// What rounds to integers is computed in f32, whatever the model is.
// MIXED: emit.decision "lower-precision" ["fc2"] choice "int8: i8 by i8" because "the policy lists it so"
// MIXED: logical.round %fc2.lhs.steps {{.*}} : tensor<4x8xf32>
// MIXED: logical.cast %fc2.lhs.inside {{.*}} : tensor<4x8xf32> -> tensor<4x8xi8>

// Floats of 8 bits have no zero point, and their largest number is the end of the range; the rest is in bf16.
// FP8: emit.decision "lower-precision" ["fc1"] choice "fp8: f8E4M3FN by f8E4M3FN" because "the policy lowers products to fp8"
// FP8: emit.decision "lower-precision" ["r", "y"] choice "bf16"
// FP8: logical.constant dense<1.280000e+02>
// FP8: logical.clamp %fc1.lhs.steps {min = -4.480000e+02 : f64, max = 4.480000e+02 : f64
// FP8-NEXT: %fc1.lhs.quantized = logical.cast %fc1.lhs.inside {{.*}} : tensor<4x8xf32> -> tensor<4x8xf8E4M3FN>
// FP8-NEXT: %fc1.lhs.f32 = logical.cast %fc1.lhs.quantized
// FP8: %fc1.rhs.quantized = logical.cast %fc1.rhs.steps {{.*}} -> tensor<3x8xf8E4M3FN>
// FP8: %fc1 = logical.linear %fc1.lhs.dequantized, %fc1.rhs.dequantized, %b
// FP8-NEXT: %fc1.bf16 = logical.cast %fc1
// FP8: %r = logical.relu %fc1.bf16 {{.*}} : tensor<4x3xbf16>

// ONCE-COUNT-1: logical.linear {{.*}} -> tensor<4x3xbf16>
// ONCE-NOT: operand0.bf16_1
// TWICE: precision: the program is lowered to bf16 already; give the model that it was made from
// RANGES: ranges.fc1: a product of 8 bits needs the range of its operand; run aicf calibrate with sample inputs
func.func @products(%x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"}, %w : tensor<3x8xf32> {logical.name = "w", logical.role = "param"}, %v : tensor<3x8xf32> {logical.name = "v", logical.role = "param"}, %b : tensor<3xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<4x3xf32> {logical.name = "y"}, tensor<4xf32> {logical.name = "s"}) {
  %fc1 = logical.linear %x, %w, %b : (tensor<4x8xf32>, tensor<3x8xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %fc2 = logical.linear %x, %v : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x3xf32>
  %r = logical.relu %fc1 : tensor<4x3xf32>
  %y = logical.add %r, %fc2 : tensor<4x3xf32>
  %s = logical.reduce_sum %y {axes = [1]} : tensor<4x3xf32> -> tensor<4xf32>
  func.return %y, %s : tensor<4x3xf32>, tensor<4xf32>
}
