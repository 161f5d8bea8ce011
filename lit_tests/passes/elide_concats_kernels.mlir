// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v3"},apply-policy{policy="{kernels: {attention: cpu.attention_avx2}}"},fuse-attention,fuse-elementwise,elide-concats' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},fuse-attention,fuse-elementwise,elide-concats' | filecheck %s --check-prefix=CUDA

// The columns of an attention are written next to others, on both targets.
// CHECK: emit.decision "elide-concats" ["beside", "context", "grown"] choice "2 of 2 parts written in place"
// CUDA: emit.decision "elide-concats" ["beside", "context", "grown"] choice "2 of 2 parts written in place"

// After a view that strides cannot express where it would lie, a part is copied too.
// CHECK: emit.decision "elide-concats" ["flat", "wide"] choice "1 of 2 parts written in place" {{.*}} rejected {folded = "strides cannot express its reshapes and transposes inside of the concatenation"}

func.func @attention(
    %q : tensor<2x8x16xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x8x16xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x8x16xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<2x8x32xf32> {logical.name = "y"}) {
  %s = logical.matmul %q, %k {transpose_b, aicf.id = "scores", aicf.src = ["context"]} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x8xf32>
  %m = logical.reduce_max %s {axes = [2], keepdims, aicf.id = "c.max", aicf.src = ["context"]} : tensor<2x8x8xf32> -> tensor<2x8x1xf32>
  %mb = logical.broadcast %m {dimensions = [0, 1, 2], aicf.id = "c.mb", aicf.src = ["context"]} : tensor<2x8x1xf32> -> tensor<2x8x8xf32>
  %d = logical.sub %s, %mb {aicf.id = "c.sub", aicf.src = ["context"]} : tensor<2x8x8xf32>
  %e = logical.exp %d {aicf.id = "c.exp", aicf.src = ["context"]} : tensor<2x8x8xf32>
  %u = logical.reduce_sum %e {axes = [2], keepdims, aicf.id = "c.sum", aicf.src = ["context"]} : tensor<2x8x8xf32> -> tensor<2x8x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2], aicf.id = "c.ub", aicf.src = ["context"]} : tensor<2x8x1xf32> -> tensor<2x8x8xf32>
  %w = logical.div %e, %ub {aicf.id = "c.div", aicf.src = ["context"]} : tensor<2x8x8xf32>
  %c = logical.matmul %w, %v {aicf.id = "c.out", aicf.src = ["context"]} : (tensor<2x8x8xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %g = logical.exp %q {aicf.id = "grown", aicf.src = ["grown"]} : tensor<2x8x16xf32>
  %y = logical.concat %c, %g {axis = 2, aicf.id = "beside", aicf.src = ["beside"]} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x32xf32>
  func.return %y : tensor<2x8x32xf32>
}

func.func @folded(
    %x : tensor<6x4xf32> {logical.name = "x", logical.role = "input"},
    %z : tensor<3x8xf32> {logical.name = "z", logical.role = "input"}) -> (tensor<3x16xf32> {logical.name = "y"}) {
  %a = logical.exp %x {aicf.id = "folded", aicf.src = ["folded"]} : tensor<6x4xf32>
  %b = logical.cumsum %z {axis = 1, aicf.id = "wide", aicf.src = ["wide"]} : tensor<3x8xf32>
  %r = logical.reshape %a {aicf.id = "r", aicf.src = ["r"]} : tensor<6x4xf32> -> tensor<3x8xf32>
  %y = logical.concat %r, %b {axis = 1, aicf.id = "flat", aicf.src = ["flat"]} : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x16xf32>
  func.return %y : tensor<3x16xf32>
}
