// RUN: aicf-opt %s -p 'generate-kernels' | filecheck %s
// RUN: aicf-opt %s -p 'generate-kernels' > %t.once
// RUN: aicf-opt %t.once -p 'generate-kernels' > %t.twice
// RUN: diff %t.once %t.twice

builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {

// CHECK: emit.decision "generate-kernels" ["point"] choice "point.code" because "1 phase over 4 x 6"
// CHECK-NEXT: emit.decision "generate-kernels" ["sm"] choice "sm.code" because "3 phases over 4, reducing 10, 3 values kept between phases"
// CHECK-NEXT: emit.decision "generate-kernels" ["cols"] choice "cols.code" because "2 phases over 6, reducing 4, 1 value kept between phases"
// CHECK-NEXT: emit.decision "generate-kernels" ["fc"] choice "fc.code" because "1 phase over 4 x 6"
// CHECK-NEXT: emit.decision "generate-kernels" ["sum"] choice "sum.code" because "1 phase over 4, reducing 8"
// CHECK-NEXT: emit.decision "generate-kernels" ["one"] choice "one.code" because "1 phase over 4 x 1"
// CHECK-NEXT: }

// Pointwise: one phase; a broadcast is an index map, a transposition in front is strides of the operand.
// CHECK-NEXT: emit.kernel @point.code parallel [4, 6] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
// CHECK-NEXT: ^bb0(%x1: f32, %b1: f32, %t1: f32):
// CHECK-NEXT:   emit.phase {
// CHECK-NEXT:     %s = arith.addf %x1, %b1 : f32
// CHECK-NEXT:     %m = arith.maximumf %s, %t1 : f32
// CHECK-NEXT:     emit.store %m, 0 : f32
// CHECK-NEXT:     emit.yield
// CHECK-LABEL: func.func @pointwise
// CHECK-NEXT: emit.group "point" {{.*}} kernel("cpu.generated", {{.*}}) code(@point.code) {
func.func @pointwise(
    %x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"},
    %b : tensor<6xf32> {logical.name = "b", logical.role = "param"},
    %t : tensor<6x4xf32> {logical.name = "t", logical.role = "input"}) -> (tensor<4x6xf32> {logical.name = "y"}) {
  %y = emit.group "point" from ["point"] ins(%x1 = %x : tensor<4x6xf32>, %b1 = %b : tensor<6xf32>, %t1 = %t : tensor<6x4xf32>) -> (tensor<4x6xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) {
    %p = logical.transpose %t1 {permutation = [1, 0]} : tensor<6x4xf32> -> tensor<4x6xf32>
    %bb = logical.broadcast %b1 {dimensions = [1]} : tensor<6xf32> -> tensor<4x6xf32>
    %s = logical.add %x1, %bb : tensor<4x6xf32>
    %m = logical.max %s, %p : tensor<4x6xf32>
    emit.yield %m : tensor<4x6xf32>
  }
  func.return %y : tensor<4x6xf32>
}

// A row softmax: three phases, the exponential is kept for the last one.
// CHECK: emit.kernel @sm.code parallel [4] reduce [10] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
// CHECK-NEXT: ^bb0(%s: f32):
// CHECK-NEXT:   %m = emit.phase -> f32 {
// CHECK-NEXT:     %[[MAX:.*]] = emit.reduce "max" %s : f32
// CHECK-NEXT:     emit.yield %[[MAX]] : f32
// CHECK-NEXT:   }
// CHECK-NEXT:   %u, %e = emit.phase -> f32, f32 {
// CHECK-NEXT:     %d = arith.subf %s, %m : f32
// CHECK-NEXT:     %[[E:.*]] = math.exp %d : f32
// CHECK-NEXT:     %[[SUM:.*]] = emit.reduce "sum" %[[E]] : f32
// CHECK-NEXT:     emit.yield %[[SUM]], %[[E]] : f32, f32
// CHECK-NEXT:   }
// CHECK-NEXT:   emit.phase {
// CHECK-NEXT:     %q = arith.divf %e, %u : f32
// CHECK-NEXT:     emit.store %q, 0 : f32
// CHECK-NEXT:     emit.yield
// CHECK-LABEL: func.func @softmax
func.func @softmax(%x : tensor<4x10xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<4x10xf32> {logical.name = "y"}) {
  %y = emit.group "sm" from ["sm"] ins(%s = %x : tensor<4x10xf32>) -> (tensor<4x10xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) {
    %m = logical.reduce_max %s {axes = [1], keepdims} : tensor<4x10xf32> -> tensor<4x1xf32>
    %mb = logical.broadcast %m {dimensions = [0, 1]} : tensor<4x1xf32> -> tensor<4x10xf32>
    %d = logical.sub %s, %mb : tensor<4x10xf32>
    %e = logical.exp %d : tensor<4x10xf32>
    %u = logical.reduce_sum %e {axes = [1], keepdims} : tensor<4x10xf32> -> tensor<4x1xf32>
    %ub = logical.broadcast %u {dimensions = [0, 1]} : tensor<4x1xf32> -> tensor<4x10xf32>
    %q = logical.div %e, %ub : tensor<4x10xf32>
    emit.yield %q : tensor<4x10xf32>
  }
  func.return %y : tensor<4x10xf32>
}

// A reduction over the first dim: it comes last in the iteration space.
// CHECK: emit.kernel @cols.code parallel [6] reduce [4] ins [affine_map<(d0, d1) -> (d1, d0)>] outs [affine_map<(d0, d1) -> (d0)>] {
// CHECK-LABEL: func.func @columns
func.func @columns(%x : tensor<4x6xf32> {logical.name = "x", logical.role = "input"}) -> (tensor<6xf32> {logical.name = "y"}) {
  %y = emit.group "cols" from ["cols"] ins(%a = %x : tensor<4x6xf32>) -> (tensor<6xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) {
    %m = logical.reduce_sum %a {axes = [0]} : tensor<4x6xf32> -> tensor<6xf32>
    emit.yield %m : tensor<6xf32>
  }
  func.return %y : tensor<6xf32>
}

// The epilogue of a product: the accumulator is operand 0, the factors are no operands of the code.
// CHECK: emit.kernel @fc.code parallel [4, 6] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
// CHECK-NEXT: ^bb0(%m: f32, %b1: f32):
// CHECK-NEXT:   emit.phase {
// CHECK-NEXT:     %s = arith.addf %m, %b1 : f32
// CHECK-NEXT:     %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:     %r = arith.maximumf %s, %[[ZERO]] : f32
// CHECK-NEXT:     emit.store %r, 0 : f32
// CHECK-LABEL: func.func @epilogue
// CHECK-NEXT: emit.group "fc" {{.*}} code(@fc.code) {
func.func @epilogue(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<6x8xf32> {logical.name = "w", logical.role = "param"},
    %b : tensor<6xf32> {logical.name = "b", logical.role = "param"}) -> (tensor<4x6xf32> {logical.name = "y"}) {
  %y = emit.group "fc" from ["fc"] ins(%x1 = %x : tensor<4x8xf32>, %w1 = %w : tensor<6x8xf32>, %b1 = %b : tensor<6xf32>) -> (tensor<4x6xf32>) kernel("cpu.gemm_avx2", {version = 4 : i64, determinism = "bitwise"}) {
    %m = logical.matmul %x1, %w1 {transpose_b} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
    %bb = logical.broadcast %b1 {dimensions = [1]} : tensor<6xf32> -> tensor<4x6xf32>
    %s = logical.add %m, %bb : tensor<4x6xf32>
    %r = logical.relu %s : tensor<4x6xf32>
    emit.yield %r : tensor<4x6xf32>
  }
  func.return %y : tensor<4x6xf32>
}

// A running sum takes its neighbours along, and is known where the sweep is: one phase. One element has nothing to sum.
// CHECK: emit.kernel @sum.code parallel [4] reduce [8] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
// CHECK-NEXT: ^bb0(%x1: f32):
// CHECK-NEXT:   emit.phase {
// CHECK-NEXT:     %e = math.exp %x1 : f32
// CHECK-NEXT:     %s = emit.scan "sum" exclusive reverse %e : f32
// CHECK-NEXT:     %n = arith.negf %s : f32
// CHECK-NEXT:     emit.store %n, 0 : f32
// CHECK: emit.kernel @one.code parallel [4, 1] reduce []
// CHECK-NOT: emit.scan
// CHECK-LABEL: func.func @running
func.func @running(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %v : tensor<4x1xf32> {logical.name = "v", logical.role = "input"}) -> (tensor<4x8xf32> {logical.name = "y"}, tensor<4x1xf32> {logical.name = "z"}) {
  %y = emit.group "sum" from ["sum"] ins(%x1 = %x : tensor<4x8xf32>) -> (tensor<4x8xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) {
    %e = logical.exp %x1 : tensor<4x8xf32>
    %s = logical.cumsum %e {axis = 1, exclusive, reverse} : tensor<4x8xf32>
    %n = logical.neg %s : tensor<4x8xf32>
    emit.yield %n : tensor<4x8xf32>
  }
  %z = emit.group "one" from ["one"] ins(%v1 = %v : tensor<4x1xf32>) -> (tensor<4x1xf32>) kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) {
    %s = logical.cumsum %v1 {axis = 1} : tensor<4x1xf32>
    %n = logical.neg %s : tensor<4x1xf32>
    emit.yield %n : tensor<4x1xf32>
  }
  func.return %y, %z : tensor<4x8xf32>, tensor<4x1xf32>
}

// A product alone and a group without a kernel need no code.
// CHECK-LABEL: func.func @none
// CHECK-NOT: code(
func.func @none(
    %x : tensor<4x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<6x8xf32> {logical.name = "w", logical.role = "param"}) -> (tensor<4x6xf32> {logical.name = "y"}, tensor<4x8xf32> {logical.name = "z"}) {
  %y = emit.group "gemm" from ["gemm"] ins(%x1 = %x : tensor<4x8xf32>, %w1 = %w : tensor<6x8xf32>) -> (tensor<4x6xf32>) kernel("cpu.gemm_avx2", {version = 4 : i64, determinism = "bitwise"}) {
    %m = logical.matmul %x1, %w1 {transpose_b} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
    emit.yield %m : tensor<4x6xf32>
  }
  %z = emit.group "undecided" from ["undecided"] ins(%x1 = %x : tensor<4x8xf32>) -> (tensor<4x8xf32>) {
    %e = logical.exp %x1 : tensor<4x8xf32>
    emit.yield %e : tensor<4x8xf32>
  }
  func.return %y, %z : tensor<4x6xf32>, tensor<4x8xf32>
}
}
