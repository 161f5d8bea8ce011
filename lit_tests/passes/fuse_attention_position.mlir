// RUN: aicf-opt %s -p 'assign-ids,set-target{target="cpu:x86-64-v4"},lower-logical,logical-cse,fuse-attention,logical-dce' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'assign-ids,set-target{target="cuda:sm_90a"},lower-logical,logical-cse,fuse-attention,logical-dce' | filecheck %s --check-prefix=MASK

// Both layers share the comparisons that say which keys are seen. A kernel that knows positions makes them itself: each
// attention has its own, and reads the position, one number.
// CPU-LABEL: func.func @layers
// CPU-NEXT: %{{.*}} = emit.group "a" from ["a"] ins({{.*}} = %p : tensor<i64>)
// CPU: logical.compare "le"
// CPU: logical.compare "gt"
// CPU: emit.yield
// CPU: emit.group "b" from ["b"] ins({{.*}} = %p : tensor<i64>)
// CPU: logical.compare "le" {{.*}} {aicf.id = "b.causal.seen", aicf.src = ["b"]}
// CPU: emit.yield

// For those that know none they become one mask that is added in both.
// MASK-LABEL: func.func @layers
// MASK: logical.compare "le"
// MASK: %[[BIAS:.*]] = logical.select %{{.*}} {aicf.id = "a.causal.bias"
// MASK-NOT: logical.select
// MASK: emit.group "a" {{.*}} ins({{.*}}%[[BIAS]]
// MASK: emit.group "b" {{.*}} ins({{.*}}%[[BIAS]]
func.func @layers(
    %q : tensor<4x8x64xf16> {logical.name = "q", logical.role = "input"},
    %k : tensor<4x256x64xf16> {logical.name = "k", logical.role = "input"},
    %p : tensor<i64> {logical.name = "p", logical.role = "input"}) -> (tensor<4x8x64xf16> {logical.name = "y"}) {
  %a = logical.attention %q, %k, %k, %p {causal, window = 100} : (tensor<4x8x64xf16>, tensor<4x256x64xf16>, tensor<4x256x64xf16>, tensor<i64>) -> tensor<4x8x64xf16>
  %b = logical.attention %a, %k, %k, %p {causal, window = 100} : (tensor<4x8x64xf16>, tensor<4x256x64xf16>, tensor<4x256x64xf16>, tensor<i64>) -> tensor<4x8x64xf16>
  func.return %b : tensor<4x8x64xf16>
}
