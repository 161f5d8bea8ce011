// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a" policy="{\"groups\": [[\"q5\", \"q6\"]]}"}' | filecheck %s --check-prefix=GROUPS
// RUN: aicf-opt %s -p 'aicf-inference{target="cpu:x86-64-v4"}' | filecheck %s --check-prefix=CPU

// The query and the new key of a step are turned by their position where attention reads them, and the four queries that
// share a head of keys read it once: no instruction but attention, and those that make cosines and sines for all layers.
// CHECK: emit.decision "fuse-attention" ["attended", "q2", {{.*}}"k2", {{.*}}"new_keys.written"{{.*}}"new_values.written"{{.*}}] choice "one kernel for {{.*}} because {{.*}}the new token's row is written on the way, and it and the query are turned by their position
// CHECK: emit.decision "decide-inplace" ["attended", "keys"] choice "write 'keys' in place"
// CHECK: emit.resolved "generated"
// CHECK: emit.resolved "cached_attention_step" id(52) name("attended
// CHECK-NEXT: ins({{.*}} : !emit.buffer<2x4x1x2x16xf16, bound>, !emit.buffer<2x16x32xf16, bound, strides [32, 64, 1]>
// CHECK-NEXT: attrs {{.*}}rotation = "halves"
// CHECK: kernel("cuda.cached_attention_step"
// CHECK-NOT: emit.resolved

// What a policy groups otherwise stays apart, and the ledger says so.
// GROUPS: emit.decision "fuse-attention" ["attended", {{.*}} because "scores and probabilities stay on chip, and no head is moved; the new token's row is written on the way" rejected {"q2 + q3 + {{.*}} = "the policy's groups keep them in different instructions"}

// CPU: emit.resolved "generated"
// CPU: emit.resolved "cached_attention_step" id(52) name("attended
// CPU-NEXT: ins({{.*}} : !emit.buffer<2x4x1x2x16xf16, bound>, !emit.buffer<2x16x32xf16, bound, strides [32, 64, 1]>
// CPU: kernel("cpu.cached_attention_avx512", {{.*}}rotation = "halves"
// CPU-NOT: emit.resolved

func.func @step(
    %q : tensor<1x256xf16> {logical.name = "q", logical.role = "input"},
    %k : tensor<1x64xf16> {logical.name = "k", logical.role = "input"},
    %v : tensor<1x64xf16> {logical.name = "v", logical.role = "input"},
    %angles : tensor<1x1x1x16xf32> {logical.name = "angles", logical.role = "input"},
    %at : tensor<1xi64> {logical.name = "at", logical.role = "input"},
    %keys : tensor<16x2x32xf16> {logical.name = "keys", logical.role = "state"},
    %values : tensor<16x2x32xf16> {logical.name = "values", logical.role = "state"})
    -> (tensor<8x1x32xf16> {logical.name = "y"}, tensor<16x2x32xf16> {logical.updates = "keys"}, tensor<16x2x32xf16> {logical.updates = "values"}) {
  %cosine = logical.cos %angles : tensor<1x1x1x16xf32>
  %sine = logical.sin %angles : tensor<1x1x1x16xf32>
  %cosines = logical.broadcast %cosine {dimensions = [0, 1, 2, 3]} : tensor<1x1x1x16xf32> -> tensor<1x1x2x16xf32>
  %sines = logical.broadcast %sine {dimensions = [0, 1, 2, 3]} : tensor<1x1x1x16xf32> -> tensor<1x1x2x16xf32>
  %half = logical.iota {axis = 2} : tensor<1x1x2x16xi32>
  %zero = logical.constant dense<0> : tensor<1x1x2x16xi32>
  %is_first = logical.compare "eq" %half, %zero : tensor<1x1x2x16xi32> -> tensor<1x1x2x16xi1>
  %minus = logical.neg %sines : tensor<1x1x2x16xf32>
  %signed = logical.select %is_first, %minus, %sines : tensor<1x1x2x16xi1>, tensor<1x1x2x16xf32>
  %q1 = logical.reshape %q : tensor<1x256xf16> -> tensor<1x8x2x16xf16>
  %q2 = logical.cast %q1 : tensor<1x8x2x16xf16> -> tensor<1x8x2x16xf32>
  %q3 = logical.flip %q2 {axes = [2]} : (tensor<1x8x2x16xf32>) -> tensor<1x8x2x16xf32>
  %q_cosines = logical.broadcast %cosines {dimensions = [0, 1, 2, 3]} : tensor<1x1x2x16xf32> -> tensor<1x8x2x16xf32>
  %q_sines = logical.broadcast %signed {dimensions = [0, 1, 2, 3]} : tensor<1x1x2x16xf32> -> tensor<1x8x2x16xf32>
  %q4 = logical.mul %q2, %q_cosines : tensor<1x8x2x16xf32>
  %q5 = logical.mul %q3, %q_sines : tensor<1x8x2x16xf32>
  %q6 = logical.add %q4, %q5 : tensor<1x8x2x16xf32>
  %q7 = logical.cast %q6 : tensor<1x8x2x16xf32> -> tensor<1x8x2x16xf16>
  %q8 = logical.reshape %q7 : tensor<1x8x2x16xf16> -> tensor<8x1x32xf16>
  %k1 = logical.reshape %k : tensor<1x64xf16> -> tensor<1x2x2x16xf16>
  %k2 = logical.cast %k1 : tensor<1x2x2x16xf16> -> tensor<1x2x2x16xf32>
  %k3 = logical.flip %k2 {axes = [2]} : (tensor<1x2x2x16xf32>) -> tensor<1x2x2x16xf32>
  %k_cosines = logical.broadcast %cosines {dimensions = [0, 1, 2, 3]} : tensor<1x1x2x16xf32> -> tensor<1x2x2x16xf32>
  %k_sines = logical.broadcast %signed {dimensions = [0, 1, 2, 3]} : tensor<1x1x2x16xf32> -> tensor<1x2x2x16xf32>
  %k4 = logical.mul %k2, %k_cosines : tensor<1x2x2x16xf32>
  %k5 = logical.mul %k3, %k_sines : tensor<1x2x2x16xf32>
  %k6 = logical.add %k4, %k5 : tensor<1x2x2x16xf32>
  %k7 = logical.cast %k6 : tensor<1x2x2x16xf32> -> tensor<1x2x2x16xf16>
  %k8 = logical.reshape %k7 : tensor<1x2x2x16xf16> -> tensor<1x2x32xf16>
  %v1 = logical.reshape %v : tensor<1x64xf16> -> tensor<1x2x32xf16>
  %new_keys = logical.scatter %keys, %at, %k8 {mode = "set"} : (tensor<16x2x32xf16>, tensor<1xi64>, tensor<1x2x32xf16>) -> tensor<16x2x32xf16>
  %new_values = logical.scatter %values, %at, %v1 {mode = "set"} : (tensor<16x2x32xf16>, tensor<1xi64>, tensor<1x2x32xf16>) -> tensor<16x2x32xf16>
  %keys1 = logical.transpose %new_keys {permutation = [1, 0, 2]} : tensor<16x2x32xf16> -> tensor<2x16x32xf16>
  %values1 = logical.transpose %new_values {permutation = [1, 0, 2]} : tensor<16x2x32xf16> -> tensor<2x16x32xf16>
  %position = logical.reshape %at : tensor<1xi64> -> tensor<i64>
  %attended = logical.attention %q8, %keys1, %values1, %position {causal} : (tensor<8x1x32xf16>, tensor<2x16x32xf16>, tensor<2x16x32xf16>, tensor<i64>) -> tensor<8x1x32xf16>
  func.return %attended, %new_keys, %new_values : tensor<8x1x32xf16>, tensor<16x2x32xf16>, tensor<16x2x32xf16>
}
