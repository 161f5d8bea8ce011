// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,select-pitches' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{\"layouts\": {\"p\": \"row_major\"}}"},fuse-elementwise,select-pitches' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},fuse-elementwise,select-pitches' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-elementwise,select-pitches,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT

// A row of 5,001 halves is no multiple of 16 bytes, which bulk tensor copies need: the exponentials lie 5,008 apart.
// CHECK: emit.decision "select-pitches" ["p", "p.gap"] choice "a row every 5008 elements" because "predicted {{.*}} us for its producer and consumers together, not {{.*}}" rejected {row_major = "predicted {{.*}} us, not {{.*}}"}
// CHECK-LABEL: func.func @rows
// CHECK: %p = emit.group "p"
// CHECK: %[[GAP:.*]] = emit.group "p.gap" from ["p"] ins() -> (tensor<4096x7xf16>)
// CHECK: logical.constant dense<0.000000e+00> : tensor<4096x7xf16>
// CHECK: %{{.*}} = logical.concat %p, %[[GAP]] {axis = 1, aicf.id = "p.pitched"
// CHECK: emit.group "y" from ["y"] ins(%p_1 = %p : tensor<4096x5001xf16>
// OFF-NOT: select-pitches
// OFF-NOT: logical.concat
// CPU-NOT: select-pitches
// CPU-NOT: logical.concat
// EMIT: emit.slot : !emit.buffer<4096x5008xf16, arena>
// EMIT: emit.resolved {{.*}} name("p")
// EMIT-NEXT: ins({{.*}} outs(%{{.*}} : !emit.buffer<4096x5001xf16, arena, strides [5008, 1]>)
// EMIT: emit.resolved {{.*}} name("y")
// EMIT-NEXT: ins(%{{.*}} : !emit.buffer<4096x5001xf16, arena, strides [5008, 1]>
// EMIT: cuda.gemm_wgmma
func.func @rows(
    %x : tensor<4096x5001xf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<5001x768xf16> {logical.name = "w", logical.role = "param"}) -> (tensor<4096x768xf16> {logical.name = "y"}) {
  %p = logical.exp %x {aicf.id = "p", aicf.src = ["p"]} : tensor<4096x5001xf16>
  %y = logical.matmul %p, %w {aicf.id = "y", aicf.src = ["y"]} : (tensor<4096x5001xf16>, tensor<5001x768xf16>) -> tensor<4096x768xf16>
  func.return %y : tensor<4096x768xf16>
}
