// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,lower-logical,fuse-attention' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},assign-ids,lower-logical,fuse-attention,materialize-views,fuse-elementwise,select-kernels,lower-to-emit' | filecheck %s --check-prefix=CPU

// A causal mask is made of coordinates: both attentions get their own, and nothing of it is left outside.
// CHECK: emit.decision "fuse-attention" ["first"{{.*}}"first.output"{{.*}}] choice "one kernel for
// CHECK-NEXT: emit.decision "fuse-attention" ["second"{{.*}}"second.output"{{.*}}] choice "one kernel for
// CHECK-LABEL: func.func @twice
// CHECK-NOT: logical.iota
// CHECK: emit.group "first{{.*}} {
// CHECK: logical.iota
// CHECK: logical.compare "le"
// CHECK: logical.select
// CHECK: emit.yield
// CHECK: emit.group "second{{.*}} {
// CHECK: logical.compare "le"
// CHECK: emit.yield
// CHECK-NOT: logical.
// CHECK: func.return

// Four heads of queries read the same keys: a stride of 0.
// CPU: emit.resolved "attention" id(29) name("first
// CPU-NEXT: ins(%{{.*}} : !emit.buffer<2x4x64x16xf32, bound>, !emit.buffer<2x4x64x16xf32, bound, strides [1024, 0, 16, 1]>, !emit.buffer<2x4x64x16xf32, bound, strides [1024, 0, 16, 1]>)
// CPU-NEXT: attrs {scale = 2.500000e-01 : f64, mask = false, causal = true, past = 0 : i64, nan_as_zero = false, empty_as_zero = false} schema("attention.v4")
// CPU: kernel("cpu.attention_{{.*}}key_steps = 4 : i64
// CPU: emit.resolved "attention" id(29) name("second
// CPU: causal = true, past = 64 : i64
func.func @twice(
    %q : tensor<8x64x16xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x64x16xf32> {logical.name = "k", logical.role = "input"},
    %k2 : tensor<2x128x16xf32> {logical.name = "k2", logical.role = "input"}) -> (tensor<8x64x16xf32> {logical.name = "y"}) {
  %first = logical.attention %q, %k, %k {causal} : (tensor<8x64x16xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>) -> tensor<8x64x16xf32>
  %second = logical.attention %first, %k2, %k2 {causal, past = 64} : (tensor<8x64x16xf32>, tensor<2x128x16xf32>, tensor<2x128x16xf32>) -> tensor<8x64x16xf32>
  func.return %second : tensor<8x64x16xf32>
}
