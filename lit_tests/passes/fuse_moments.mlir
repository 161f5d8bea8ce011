// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{fusion: {multi_output: true, epilogue: false}}"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{determinism: batch_invariant}"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s --check-prefix=OFF
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{layouts: {conv: row_major}}"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s --check-prefix=ROWS
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{conv: cudnn}"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s --check-prefix=LIBRARY
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},apply-policy{policy="{kernels: {conv: cuda.conv_wgmma}}"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s --check-prefix=NAMED
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_80"},assign-ids,lower-logical,logical-cse,materialize-views,fuse-epilogues,fuse-elementwise,fuse-multi-output,sink-casts,select-layouts,fuse-moments' | filecheck %s --check-prefix=OLDER
// RUN: aicf-opt %s -p 'aicf-inference{target="cuda:sm_90a"},raise-emit,aicf-inference{start=lowered}' | filecheck %s --check-prefix=EMIT

// EMIT: emit.resolved "conv_moments" {{.*}} name("conv")
// EMIT: kernel("cuda.conv_wgmma_moments"
// EMIT: emit.resolved "generated"
// CHECK: emit.decision "fuse-moments" ["conv", "{{.*}}.sum", "{{.*}}.sum"] choice "taken by the convolution" because "what it stores is on the chip, and is read once less" cost {unfused_us = {{.*}}, fused_us = {{.*}}}
// OFF-NOT: choice "taken by the convolution"
// ROWS: emit.decision "fuse-moments" {{.*}} choice "not fused" because "cuda.conv_wgmma_moments: statistics are taken of results that are stored as lines of 16 bytes"
// LIBRARY: emit.decision "fuse-moments" {{.*}} choice "not fused" because "the policy prefers cudnn for convolutions, and that takes no moments"
// NAMED: emit.decision "fuse-moments" {{.*}} choice "not fused" because "the policy gives a kernel or record to 'conv', which would be no instruction of its own: drop that entry"
// OLDER: emit.decision "fuse-moments" {{.*}} choice "not fused" because "cuda.conv_wgmma_moments: warpgroup products and bulk tensor copies need sm_90a, the target is sm_80"

// The convolution's group has the sums of its result and of the squares around their means, and what follows for a
// channel; the norm reads its operand and those.
// CHECK-LABEL: func.func @normed
// CHECK: emit.group "conv" {{.*}} -> (tensor<32x28x28x256xbf16>, tensor<1x256x1x1xf32>, tensor<1x256x1x1xf32>, tensor<256xf32>) {
// CHECK: logical.conv
// CHECK: logical.cast {{.*}} {aicf.id = "{{.*}}.conv"
// CHECK-COUNT-2: logical.reduce_sum
// CHECK: emit.group
// CHECK-NOT: logical.reduce_sum
// CHECK: func.return
func.func @normed(%x: tensor<32x28x28x64xbf16> {logical.name = "x", logical.role = "input"}, %w: tensor<64x1x1x256xbf16> {logical.name = "w", logical.role = "input"}, %scale: tensor<256xf32> {logical.name = "scale", logical.role = "param"}) -> (tensor<32x28x28x256xbf16> {logical.name = "y"}, tensor<1x256x1x1xf32> {logical.name = "mean"}, tensor<1x256x1x1xf32> {logical.name = "inverse"}, tensor<256xf32> {logical.name = "factor"}) {
  %0 = logical.transpose %x {permutation = [0, 3, 1, 2]} : tensor<32x28x28x64xbf16> -> tensor<32x64x28x28xbf16>
  %1 = logical.transpose %w {permutation = [3, 0, 1, 2]} : tensor<64x1x1x256xbf16> -> tensor<256x64x1x1xbf16>
  %conv = logical.conv %0, %1 {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1} : (tensor<32x64x28x28xbf16>, tensor<256x64x1x1xbf16>) -> tensor<32x256x28x28xbf16>
  %2 = logical.cast %conv : tensor<32x256x28x28xbf16> -> tensor<32x256x28x28xf32>
  %3 = logical.reduce_mean %2 {axes = [0, 2, 3], keepdims} : tensor<32x256x28x28xf32> -> tensor<1x256x1x1xf32>
  %4 = logical.broadcast %3 {dimensions = [0, 1, 2, 3]} : tensor<1x256x1x1xf32> -> tensor<32x256x28x28xf32>
  %5 = logical.sub %2, %4 : tensor<32x256x28x28xf32>
  %6 = logical.mul %5, %5 : tensor<32x256x28x28xf32>
  %7 = logical.reduce_mean %6 {axes = [0, 2, 3], keepdims} : tensor<32x256x28x28xf32> -> tensor<1x256x1x1xf32>
  %8 = logical.constant dense<1.000000e-05> : tensor<1x256x1x1xf32>
  %9 = logical.add %7, %8 : tensor<1x256x1x1xf32>
  %10 = logical.rsqrt %9 : tensor<1x256x1x1xf32>
  %11 = logical.reshape %10 : tensor<1x256x1x1xf32> -> tensor<256xf32>
  %12 = logical.mul %11, %scale : tensor<256xf32>
  %13 = logical.broadcast %3 {dimensions = [0, 1, 2, 3]} : tensor<1x256x1x1xf32> -> tensor<32x256x28x28xf32>
  %14 = logical.sub %2, %13 : tensor<32x256x28x28xf32>
  %15 = logical.reshape %12 : tensor<256xf32> -> tensor<1x256x1x1xf32>
  %16 = logical.broadcast %15 {dimensions = [0, 1, 2, 3]} : tensor<1x256x1x1xf32> -> tensor<32x256x28x28xf32>
  %17 = logical.mul %14, %16 : tensor<32x256x28x28xf32>
  %18 = logical.relu %17 : tensor<32x256x28x28xf32>
  %19 = logical.cast %18 : tensor<32x256x28x28xf32> -> tensor<32x256x28x28xbf16>
  %20 = logical.transpose %19 {permutation = [0, 2, 3, 1]} : tensor<32x256x28x28xbf16> -> tensor<32x28x28x256xbf16>
  func.return %20, %3, %10, %12 : tensor<32x28x28x256xbf16>, tensor<1x256x1x1xf32>, tensor<1x256x1x1xf32>, tensor<256xf32>
}
