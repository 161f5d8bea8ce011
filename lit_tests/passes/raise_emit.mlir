// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"},raise-emit' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"},raise-emit{pin=groups}' | filecheck %s --check-prefix=GROUPS
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"},raise-emit{pin=nothing}' | filecheck %s --check-prefix=NOTHING

// Groups and kernels of the program become the policy; ledger, buffers and prepared weights are gone.
// CHECK: aicf.policy = {{.*}}kernels = {fc = "cpu.gemm_avx2"}, records = {fc = {lanes = 8 : i64, {{.*}}groups = {{\[\[}}"fc.matmul", "fc.bias", "act"]]
// CHECK-NOT: emit.
// GROUPS: kernels = {}{{.*}}groups = {{\[\[}}"fc.matmul", "fc.bias", "act"]]
// NOTHING: kernels = {}{{.*}}groups = []

// The prepared weight is an argument again, and ids and sources are those of the program before.
// CHECK: func.func @f(%x: {{.*}}logical.role = "input"}, %b: {{.*}}logical.role = "param"}, %w: {{.*}}logical.role = "param"})
// CHECK-NEXT: logical.matmul %x, %w {transpose_b, aicf.id = "fc.matmul", aicf.src = ["fc"]}
// CHECK-NEXT: logical.broadcast %b
// CHECK-NEXT: logical.add {{.*}}aicf.id = "fc.bias"
// CHECK-NEXT: %act = logical.relu {{.*}}aicf.id = "act", aicf.src = ["act"]
// CHECK-NEXT: func.return %act
func.func @f(
    %x : tensor<8x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<32x16xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<32xf32> {logical.name = "b", logical.role = "param"})
    -> (tensor<8x32xf32> {logical.name = "y"}) {
  %fc = logical.linear %x, %w, %b : (tensor<8x16xf32>, tensor<32x16xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %act = logical.relu %fc : tensor<8x32xf32>
  func.return %act : tensor<8x32xf32>
}
