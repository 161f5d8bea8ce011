// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s --check-prefix=CUDA

// Of a batch of two sequences in f32, queries and the new keys are turned where attention reads them, and each sequence
// writes a row of its own: one instruction.
// CHECK: emit.decision "fuse-attention" ["attended", {{.*}}"q_total"{{.*}}"k_total"{{.*}}"new_keys.written"{{.*}}"new_values.written"{{.*}}] choice "one kernel for {{.*}} because {{.*}}the new token's row is written on the way, and it and the query are turned by their position
// CHECK: emit.decision "decide-inplace" ["attended", "keys"] choice "write 'keys' in place"
// CHECK: emit.resolved "cached_attention_step" id(52) name("attended
// CHECK-NEXT: ins({{.*}} : !emit.buffer<2x2x2x1x16x2xf32, bound>, !emit.buffer<2x2x16x32xf32, bound, strides [1024, 32, 64, 1]>, {{.*}} !emit.buffer<2xi64, bound>, !emit.buffer<2x2x1x16x2xf32, bound>
// CHECK-NEXT: attrs {{.*}}rotation = "neighbours"
// CHECK: kernel("cpu.cached_attention_avx512", {{.*}}rotation = "neighbours"
// CHECK-NOT: emit.resolved

// Where no kernel takes elements of f32, what turns and what writes are instructions of their own.
// CUDA: emit.decision "fuse-attention" ["attended", {{.*}} rejected {{.*}}16 bytes a lane are f16 or bf16 here, not f32
// CUDA: emit.resolved "generated" id(24) name("q_other")
// CUDA: emit.resolved "generated" id(24) name("k_other")
// CUDA: emit.resolved "generated" id(24) name("new_keys")
// CUDA: emit.resolved "generated" id(24) name("new_values")
// CUDA: emit.resolved "attention"

func.func @step(
    %q : tensor<2x128xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x64xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x64xf32> {logical.name = "v", logical.role = "input"},
    %cosines : tensor<2x1x16x2xf32> {logical.name = "cosines", logical.role = "input"},
    %sines : tensor<2x1x16x2xf32> {logical.name = "sines", logical.role = "input"},
    %at : tensor<2xi64> {logical.name = "at", logical.role = "input"},
    %keys : tensor<2x16x2x32xf32> {logical.name = "keys", logical.role = "state"},
    %values : tensor<2x16x2x32xf32> {logical.name = "values", logical.role = "state"})
    -> (tensor<2x4x1x32xf32> {logical.name = "y"}, tensor<2x16x2x32xf32> {logical.updates = "keys"}, tensor<2x16x2x32xf32> {logical.updates = "values"}) {
  %q_pairs = logical.reshape %q : tensor<2x128xf32> -> tensor<2x4x16x2xf32>
  %q_other = logical.flip %q_pairs {axes = [3]} : (tensor<2x4x16x2xf32>) -> tensor<2x4x16x2xf32>
  %q_cosines = logical.broadcast %cosines {dimensions = [0, 1, 2, 3]} : tensor<2x1x16x2xf32> -> tensor<2x4x16x2xf32>
  %q_sines = logical.broadcast %sines {dimensions = [0, 1, 2, 3]} : tensor<2x1x16x2xf32> -> tensor<2x4x16x2xf32>
  %q_kept = logical.mul %q_pairs, %q_cosines : tensor<2x4x16x2xf32>
  %q_turned = logical.mul %q_other, %q_sines : tensor<2x4x16x2xf32>
  %q_total = logical.add %q_kept, %q_turned : tensor<2x4x16x2xf32>
  %query = logical.reshape %q_total : tensor<2x4x16x2xf32> -> tensor<2x4x1x32xf32>
  %k_pairs = logical.reshape %k : tensor<2x64xf32> -> tensor<2x2x16x2xf32>
  %k_other = logical.flip %k_pairs {axes = [3]} : (tensor<2x2x16x2xf32>) -> tensor<2x2x16x2xf32>
  %k_cosines = logical.broadcast %cosines {dimensions = [0, 1, 2, 3]} : tensor<2x1x16x2xf32> -> tensor<2x2x16x2xf32>
  %k_sines = logical.broadcast %sines {dimensions = [0, 1, 2, 3]} : tensor<2x1x16x2xf32> -> tensor<2x2x16x2xf32>
  %k_kept = logical.mul %k_pairs, %k_cosines : tensor<2x2x16x2xf32>
  %k_turned = logical.mul %k_other, %k_sines : tensor<2x2x16x2xf32>
  %k_total = logical.add %k_kept, %k_turned : tensor<2x2x16x2xf32>
  %new_key = logical.reshape %k_total : tensor<2x2x16x2xf32> -> tensor<2x1x2x32xf32>
  %new_value = logical.reshape %v : tensor<2x64xf32> -> tensor<2x1x2x32xf32>
  %at1 = logical.reshape %at : tensor<2xi64> -> tensor<2x1x1x1xi64>
  %rows = logical.broadcast %at1 {dimensions = [0, 1, 2, 3]} : tensor<2x1x1x1xi64> -> tensor<2x1x2x32xi64>
  %new_keys = logical.scatter_elements %keys, %rows, %new_key {axis = 1, mode = "set"} : (tensor<2x16x2x32xf32>, tensor<2x1x2x32xi64>, tensor<2x1x2x32xf32>) -> tensor<2x16x2x32xf32>
  %new_values = logical.scatter_elements %values, %rows, %new_value {axis = 1, mode = "set"} : (tensor<2x16x2x32xf32>, tensor<2x1x2x32xi64>, tensor<2x1x2x32xf32>) -> tensor<2x16x2x32xf32>
  %keys1 = logical.transpose %new_keys {permutation = [0, 2, 1, 3]} : tensor<2x16x2x32xf32> -> tensor<2x2x16x32xf32>
  %values1 = logical.transpose %new_values {permutation = [0, 2, 1, 3]} : tensor<2x16x2x32xf32> -> tensor<2x2x16x32xf32>
  %attended = logical.attention %query, %keys1, %values1, %at {causal} : (tensor<2x4x1x32xf32>, tensor<2x2x16x32xf32>, tensor<2x2x16x32xf32>, tensor<2xi64>) -> tensor<2x4x1x32xf32>
  func.return %attended, %new_keys, %new_values : tensor<2x4x1x32xf32>, tensor<2x16x2x32xf32>, tensor<2x16x2x32xf32>
}
