// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"}' | filecheck %s

// A step of a decoder is one instruction: it writes the token's key and value into the state, in place and by heads, and
// attends to what is there then.
// CHECK: emit.decision "fuse-attention" ["attended", {{.*}}"new_keys.written"{{.*}}"new_values.written"{{.*}}] choice "one kernel for {{.*}} because {{.*}}the new token's row is written on the way
// CHECK: emit.decision "decide-inplace" ["attended", "keys"] choice "write 'keys' in place"
// CHECK: emit.decision "decide-inplace" ["attended", "values"] choice "write 'values' in place"
// CHECK: emit.resolved "attention_step" id(36) name("attended
// CHECK-SAME: src(["new_keys", "k1", "k2", "new_values", "v1", "v2", "attended"])
// CHECK-NEXT: ins(%q{{.*}}, %keys{{.*}}, %values{{.*}}, %at{{.*}}, %k{{.*}}, %v{{.*}} : !emit.buffer<2x1x32xf16, bound>, !emit.buffer<2x16x32xf16, bound, strides [32, 64, 1]>, !emit.buffer<2x16x32xf16, bound, strides [32, 64, 1]>, !emit.buffer<i64, bound>
// CHECK-SAME: outs(%y, %new_keys.written, %new_values.written : !emit.buffer<2x1x32xf16, bound>, !emit.buffer<2x16x32xf16, bound, strides [32, 64, 1]>
// CHECK: kernel("cuda.attention_step", {{.*}}splits = 1 : i64, warps = 2 : i64})
// CHECK-NOT: emit.resolved

func.func @step(
    %q : tensor<1x64xf16> {logical.name = "q", logical.role = "input"},
    %k : tensor<1x64xf16> {logical.name = "k", logical.role = "input"},
    %v : tensor<1x64xf16> {logical.name = "v", logical.role = "input"},
    %at : tensor<1xi64> {logical.name = "at", logical.role = "input"},
    %keys : tensor<16x64xf16> {logical.name = "keys", logical.role = "state"},
    %values : tensor<16x64xf16> {logical.name = "values", logical.role = "state"}) -> (tensor<2x1x32xf16> {logical.name = "y"}, tensor<16x64xf16> {logical.updates = "keys"}, tensor<16x64xf16> {logical.updates = "values"}) {
  %new_keys = logical.scatter %keys, %at, %k {mode = "set"} : (tensor<16x64xf16>, tensor<1xi64>, tensor<1x64xf16>) -> tensor<16x64xf16>
  %new_values = logical.scatter %values, %at, %v {mode = "set"} : (tensor<16x64xf16>, tensor<1xi64>, tensor<1x64xf16>) -> tensor<16x64xf16>
  %q1 = logical.reshape %q : tensor<1x64xf16> -> tensor<2x1x32xf16>
  %k1 = logical.reshape %new_keys : tensor<16x64xf16> -> tensor<16x2x32xf16>
  %k2 = logical.transpose %k1 {permutation = [1, 0, 2]} : tensor<16x2x32xf16> -> tensor<2x16x32xf16>
  %v1 = logical.reshape %new_values : tensor<16x64xf16> -> tensor<16x2x32xf16>
  %v2 = logical.transpose %v1 {permutation = [1, 0, 2]} : tensor<16x2x32xf16> -> tensor<2x16x32xf16>
  %attended = logical.attention %q1, %k2, %v2 : (tensor<2x1x32xf16>, tensor<2x16x32xf16>, tensor<2x16x32xf16>) -> tensor<2x1x32xf16>
  func.return %attended, %new_keys, %new_values : tensor<2x1x32xf16>, tensor<16x64xf16>, tensor<16x64xf16>
}
