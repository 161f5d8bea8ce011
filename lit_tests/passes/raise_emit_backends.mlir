// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"},raise-emit,aicf-inference{target="cpu:x86-64-v3" start=lowered}' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"},raise-emit,aicf-inference{target="cuda:sm_90a" start=lowered}' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'aicf-inference{target=reference policy="{memory: separate, fusion: {norm: false}}"},raise-emit,aicf-inference{target="cpu:x86-64-v3" start=lowered}' | filecheck %s --check-prefix=ASKED
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v3"},raise-emit' | filecheck %s --check-prefix=RAISED

// A program that was raised compiles for another backend: what was read of it, which names kernels of the first one, is
// open again; what a user asked for stays.
// CPU: emit.decision "set-target" ["module"] choice "groups, kernels and streams are open again" because "they were read from programs for cuda, which has kernels of its own"
// CPU: kernel("cpu.
// CPU-NOT: kernel("cuda.
// CUDA: kernel("cuda.
// CUDA-NOT: kernel("cpu.
// ASKED: memory = "separate"
// ASKED: emit.decision "plan-memory" {{.*}} because "the policy gives each slot bytes of its own
// RAISED: aicf.read_from = "cpu"
func.func @classify(
    %x : tensor<16x64xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<32x64xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<32xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<16x32xf32> {logical.name = "y"}) {
  %fc = logical.linear %x, %w, %b : (tensor<16x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<16x32xf32>
  %act = logical.relu %fc : tensor<16x32xf32>
  %prob = logical.softmax %act {axis = 1} : tensor<16x32xf32>
  func.return %prob : tensor<16x32xf32>
}
