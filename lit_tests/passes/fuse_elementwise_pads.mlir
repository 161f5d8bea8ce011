// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,materialize-views,fuse-elementwise,select-kernels,generate-kernels' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,materialize-views,fuse-elementwise,select-kernels,generate-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},assign-ids,materialize-views,fuse-elementwise' | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v4"},apply-policy{policy="{\"groups\": [[\"p\", \"w\", \"m\"]]}"},assign-ids,materialize-views,fuse-elementwise' | filecheck %s --check-prefix=LISTED

// Windows in a pad read its operand where they reach it and the border elsewhere: no padded copy is written.

// CHECK: emit.decision "fuse-elementwise" ["p", "w", "m"] choice "one kernel for 3 ops"
// CHECK-NEXT: emit.decision "fuse-elementwise" ["kept"] choice "alone" because "its consumers cannot be fused with it"
// CHECK-NEXT: emit.decision "fuse-elementwise" ["around"] choice "alone" because "its consumers cannot be fused with it" rejected {v_1 = {{.*}}one of a wider type"
// CHECK: emit.kernel @p.code parallel [2, 3, 5, 6] reduce [3, 2] ins [indexed] outs
// CHECK: %[[IN:.*]] = arith.andi %{{.*}}, %{{.*}} : i1
// CHECK-NEXT: %[[READ:.*]] = emit.load %x[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] if %[[IN]] else %{{.*}} : memref<2x3x9x11xf32>, i32
// CHECK-NEXT: emit.reduce "max" %[[READ]] : f32
// On the CPU whole vectors are read in a padded copy.
// CPU: emit.decision "fuse-elementwise" ["p"] choice "alone" {{.*}}rejected {"p + w + m" = "predicted {{.*}} us fused and {{.*}} us unfused; {{.*}}"
// CPU-LABEL: func.func @pooled
// CPU: emit.group "p"
// CPU: %{{.*}} = logical.window
// CPU: logical.reduce_max
// LISTED: emit.decision "fuse-elementwise" ["p", "w", "m"] choice "one kernel for 3 ops"
// EMIT-LABEL: emit.program @pooled
// EMIT: emit.resolved "generated" id(24) name("p")
// EMIT-NOT: emit.resolved
// EMIT-LABEL: emit.program @read
func.func @pooled(%x : tensor<2x3x9x11xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<2x3x5x6xf32> {logical.name = "y"}) {
  %beyond = logical.constant dense<0xff800000> : tensor<f32>
  %p = logical.pad %x, %beyond {low = [0, 0, 1, 1], high = [0, 0, 1, 1]} : (tensor<2x3x9x11xf32>, tensor<f32>) -> tensor<2x3x11x13xf32>
  %w = logical.window %p {sizes = [3, 2], strides = [2, 2], dilations = [1, 2]} : tensor<2x3x11x13xf32> -> tensor<2x3x5x6x3x2xf32>
  %m = logical.reduce_max %w {axes = [4, 5]} : tensor<2x3x5x6x3x2xf32> -> tensor<2x3x5x6xf32>
  func.return %m : tensor<2x3x5x6xf32>
}

// What something else reads too is written, and so is what a product multiplies windows of.
// EMIT: emit.resolved "generated" id(24) name("kept")
// EMIT: emit.resolved "reduce_sum"
// EMIT-NOT: emit.resolved
// EMIT-LABEL: emit.program @multiplied
func.func @read(%x : tensor<3x9xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<3x5xf32> {logical.name = "y"}, tensor<3x11xf32> {logical.name = "z"}) {
  %zero = logical.constant dense<0.0> : tensor<f32>
  %kept = logical.pad %x, %zero {low = [0, 1], high = [0, 1]} : (tensor<3x9xf32>, tensor<f32>) -> tensor<3x11xf32>
  %v = logical.window %kept {sizes = [3], strides = [2], dilations = [1]} : tensor<3x11xf32> -> tensor<3x5x3xf32>
  %s = logical.reduce_sum %v {axes = [2]} : tensor<3x5x3xf32> -> tensor<3x5xf32>
  func.return %s, %kept : tensor<3x5xf32>, tensor<3x11xf32>
}

// EMIT: emit.resolved "generated" id(24) name("around")
// EMIT: emit.resolved "gemm"
func.func @multiplied(%x : tensor<3x9xf32> {logical.name = "x", logical.role = "input"}, %f : tensor<3x4xf32> {logical.name = "f", logical.role = "param"}) -> (tensor<3x5x4xf32> {logical.name = "y"}) {
  %zero = logical.constant dense<0.0> : tensor<f32>
  %around = logical.pad %x, %zero {low = [0, 1], high = [0, 1]} : (tensor<3x9xf32>, tensor<f32>) -> tensor<3x11xf32>
  %v = logical.window %around {sizes = [3], strides = [2], dilations = [1]} : tensor<3x11xf32> -> tensor<3x5x3xf32>
  %ff = logical.broadcast %f {dimensions = [1, 2]} : tensor<3x4xf32> -> tensor<3x3x4xf32>
  %s = logical.matmul %v, %ff : (tensor<3x5x3xf32>, tensor<3x3x4xf32>) -> tensor<3x5x4xf32>
  func.return %s : tensor<3x5x4xf32>
}
