// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,fuse-attention' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target=reference},assign-ids,fuse-attention,materialize-views,fuse-elementwise,select-kernels,lower-to-emit' | filecheck %s --check-prefix=EMIT
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_90a"},assign-ids,fuse-attention,materialize-views,fuse-elementwise,select-kernels,lower-to-emit' | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s -p 'set-target{target=reference},apply-policy{policy="{\"rounding\": \"strict\"}"},assign-ids,fuse-attention' | filecheck %s --check-prefix=STRICT

// What PyTorch's exporter writes for scaled_dot_product_attention, and what only looks like it.

// CHECK: emit.decision "fuse-attention" ["qs", "ks", "s", "x", {{.*}}"p", "nan", "w", "y"] choice "one kernel for 14 ops"
// CHECK-NEXT: emit.decision "fuse-attention" [{{.*}}] choice "one kernel for 10 ops"
// CHECK-NEXT: emit.decision "fuse-attention" ["masked", "y_2"] choice "one mask of two" because "their sum follows from no score, and attention reads one mask"
// CHECK-NEXT: emit.decision "fuse-attention" [{{.*}}] choice "one kernel for 10 ops"
// CHECK-NEXT: emit.decision "fuse-attention" ["masked", "z"] choice "one mask of two"
// CHECK-NEXT: emit.decision "fuse-attention" [{{.*}}] choice "one kernel for 10 ops"
// CHECK-NEXT: emit.decision "fuse-attention" [{{.*}}] choice "one kernel for 10 ops"
// CHECK-NEXT: }
// CUDA: emit.decision "fuse-attention" ["qs", "ks", "s", "x", {{.*}}"p", "nan", "w", "y"] choice "one kernel for 14 ops"

// The root of the scale is of queries and of keys, and NaN becomes 0. Keys are turned back before their factor.
// CHECK-LABEL: func.func @exported
// CHECK: emit.group "qs"
// CHECK: %[[H:.*]] = logical.constant dense<5.000000e-01> : tensor<2x3x7x4xf32>
// CHECK-NEXT: %[[K:.*]] = logical.transpose %{{.*}} {permutation = [0, 1, 3, 2]} : tensor<2x3x4x7xf32> -> tensor<2x3x7x4xf32>
// CHECK-NEXT: %[[S:.*]] = logical.mul %[[H]], %[[K]] {aicf.id = "ks"
// CHECK-NEXT: logical.matmul %{{.*}}, %[[S]] {transpose_b, aicf.id = "s"
// CHECK-NOT: emit.group
// CHECK: func.return
// EMIT-LABEL: emit.program @exported
// EMIT: emit.resolved "attention"
// EMIT-NEXT: ins(%q, %{{.*}}, %v, %mask : {{.*}}, !emit.buffer<2x3x7x4xf32, bound, strides [84, 28, 1, 7]>
// EMIT-NEXT: attrs {scale = 3.750000e-01 : f64, mask = true, causal = false, past = 0 : i64, nan_as_zero = true, empty_as_zero = false}
// EMIT-NOT: emit.resolved
// CUDA-LABEL: emit.program @exported
// CUDA: emit.resolved "attention"
// CUDA: kernel("cuda.attention_simt", {version = 3 : i64, {{.*}}nan_as_zero = true, empty_as_zero = false
// CUDA-NOT: emit.resolved
// CUDA-LABEL: emit.program
func.func @exported(
    %q : tensor<2x3x5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x4x7xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x3x7x4xf32> {logical.name = "v", logical.role = "input"},
    %mask : tensor<2x3x5x7xf32> {logical.name = "mask", logical.role = "input"}) -> (tensor<2x3x5x4xf32> {logical.name = "y"}) {
  %rq = logical.constant dense<0.75> : tensor<2x3x5x4xf32>
  %qs = logical.mul %q, %rq : tensor<2x3x5x4xf32>
  %rk = logical.constant dense<0.5> : tensor<2x3x4x7xf32>
  %ks = logical.mul %rk, %k : tensor<2x3x4x7xf32>
  %s = logical.matmul %qs, %ks : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %x = logical.add %s, %mask : tensor<2x3x5x7xf32>
  %m = logical.reduce_max %x {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %x, %n : tensor<2x3x5x7xf32>
  %e = logical.exp %d : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub : tensor<2x3x5x7xf32>
  %zero = logical.constant dense<0.0> : tensor<2x3x5x7xf32>
  %nan = logical.compare "ne" %p, %p : tensor<2x3x5x7xf32> -> tensor<2x3x5x7xi1>
  %w = logical.select %nan, %zero, %p : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %y = logical.matmul %w, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  func.return %y : tensor<2x3x5x4xf32>
}

// Adding zero changes no probability: there is no mask, and without a guard NaN stays.
// CHECK-LABEL: func.func @zeros
// CHECK: emit.group
// EMIT-LABEL: emit.program @zeros
// EMIT: attrs {scale = 1.000000e+00 : f64, mask = false, causal = false, past = 0 : i64, nan_as_zero = false, empty_as_zero = false}
func.func @zeros(
    %q : tensor<2x3x5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x4x7xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x3x7x4xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<2x3x5x4xf32> {logical.name = "y"}) {
  %s = logical.matmul %q, %k : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %zero = logical.constant dense<0.0> : tensor<2x3x5x7xf32>
  %x = logical.add %s, %zero : tensor<2x3x5x7xf32>
  %m = logical.reduce_max %x {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %x, %n : tensor<2x3x5x7xf32>
  %e = logical.exp %d : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub : tensor<2x3x5x7xf32>
  %y = logical.matmul %p, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  func.return %y : tensor<2x3x5x4xf32>
}

// Two masks become their sum, which both attentions read; with rounding of every op they stay two.
// CHECK-LABEL: func.func @two_masks
// CHECK: %[[M:.*]] = logical.add %mask, %bias {aicf.id = "masked", aicf.src = ["masked", "again"]}
// CHECK: emit.group {{.*}} = %[[M]] :
// CHECK: emit.group {{.*}} = %[[M]] :
// STRICT: emit.decision "fuse-attention" ["y_2", "s_2"] choice "not fused" because "'masked' (add) is between the product and its softmax: attention adds one mask; add up the masks first"
func.func @two_masks(
    %q : tensor<2x3x5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x4x7xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x3x7x4xf32> {logical.name = "v", logical.role = "input"},
    %mask : tensor<2x3x5x7xf32> {logical.name = "mask", logical.role = "input"},
    %bias : tensor<2x3x5x7xf32> {logical.name = "bias", logical.role = "input"}) -> (tensor<2x3x5x4xf32> {logical.name = "y"}, tensor<2x3x5x4xf32> {logical.name = "z"}) {
  %s = logical.matmul %q, %k : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %masked = logical.add %s, %mask : tensor<2x3x5x7xf32>
  %x = logical.add %masked, %bias : tensor<2x3x5x7xf32>
  %m = logical.reduce_max %x {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %x, %n : tensor<2x3x5x7xf32>
  %e = logical.exp %d : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub : tensor<2x3x5x7xf32>
  %y = logical.matmul %p, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  %t = logical.matmul %q, %k : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %again = logical.add %mask, %t : tensor<2x3x5x7xf32>
  %xx = logical.add %bias, %again : tensor<2x3x5x7xf32>
  %zm = logical.reduce_max %xx {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %zn = logical.broadcast %zm {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %zd = logical.sub %xx, %zn : tensor<2x3x5x7xf32>
  %ze = logical.exp %zd : tensor<2x3x5x7xf32>
  %zu = logical.reduce_sum %ze {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %zub = logical.broadcast %zu {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %zp = logical.div %ze, %zub : tensor<2x3x5x7xf32>
  %z = logical.matmul %zp, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  func.return %y, %z : tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>
}

// Scaled queries that something else reads too are written in any case: the attention reads those.
// CHECK-LABEL: func.func @read
// CHECK: %[[Q:.*]] = logical.mul %q
// CHECK: emit.group {{.*}} = %[[Q]] :
// EMIT-LABEL: emit.program @read
// EMIT: attrs {scale = 5.000000e-01 : f64
func.func @read(
    %q : tensor<2x3x5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x4x7xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x3x7x4xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<2x3x5x4xf32> {logical.name = "y"}, tensor<2x3x5x4xf32> {logical.name = "z"}) {
  %rq = logical.constant dense<0.75> : tensor<2x3x5x4xf32>
  %qs = logical.mul %q, %rq : tensor<2x3x5x4xf32>
  %rk = logical.constant dense<0.5> : tensor<2x3x4x7xf32>
  %ks = logical.mul %rk, %k : tensor<2x3x4x7xf32>
  %s = logical.matmul %qs, %ks : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %m = logical.reduce_max %s {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %s, %n : tensor<2x3x5x7xf32>
  %e = logical.exp %d : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub : tensor<2x3x5x7xf32>
  %y = logical.matmul %p, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  %z = logical.neg %qs : tensor<2x3x5x4xf32>
  func.return %y, %z : tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>
}

// One in place of NaN is no attention, and neither is what takes the place of numbers; nothing is said about them.
// CHECK-LABEL: func.func @ones
// CHECK-NOT: emit.group
func.func @ones(
    %q : tensor<2x3x5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x4x7xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x3x7x4xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<2x3x5x4xf32> {logical.name = "y"}) {
  %s = logical.matmul %q, %k : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %m = logical.reduce_max %s {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %s, %n : tensor<2x3x5x7xf32>
  %e = logical.exp %d : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub : tensor<2x3x5x7xf32>
  %zero = logical.constant dense<1.0> : tensor<2x3x5x7xf32>
  %nan = logical.compare "ne" %p, %p : tensor<2x3x5x7xf32> -> tensor<2x3x5x7xi1>
  %w = logical.select %nan, %zero, %p : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %y = logical.matmul %w, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  func.return %y : tensor<2x3x5x4xf32>
}
func.func @numbers(
    %q : tensor<2x3x5x4xf32> {logical.name = "q", logical.role = "input"},
    %k : tensor<2x3x4x7xf32> {logical.name = "k", logical.role = "input"},
    %v : tensor<2x3x7x4xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<2x3x5x4xf32> {logical.name = "y"}) {
  %s = logical.matmul %q, %k : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %m = logical.reduce_max %s {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %n = logical.broadcast %m {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %d = logical.sub %s, %n : tensor<2x3x5x7xf32>
  %e = logical.exp %d : tensor<2x3x5x7xf32>
  %u = logical.reduce_sum %e {axes = [3], keepdims} : tensor<2x3x5x7xf32> -> tensor<2x3x5x1xf32>
  %ub = logical.broadcast %u {dimensions = [0, 1, 2, 3]} : tensor<2x3x5x1xf32> -> tensor<2x3x5x7xf32>
  %p = logical.div %e, %ub : tensor<2x3x5x7xf32>
  %zero = logical.constant dense<0.0> : tensor<2x3x5x7xf32>
  %nan = logical.compare "eq" %p, %p : tensor<2x3x5x7xf32> -> tensor<2x3x5x7xi1>
  %w = logical.select %nan, %zero, %p : tensor<2x3x5x7xi1>, tensor<2x3x5x7xf32>
  %y = logical.matmul %w, %v : (tensor<2x3x5x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32>
  func.return %y : tensor<2x3x5x4xf32>
}
