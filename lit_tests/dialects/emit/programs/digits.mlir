// RUN: aicf-opt %s > %t.once
// RUN: aicf-opt %t.once > %t.twice
// RUN: diff %t.once %t.twice
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// The digits MLP: two shape buckets, weights prepared once.

// CHECK: emit.program @prepare
// CHECK: emit.program @"mlp@N=1" {{.*}} graphs = {{\[\[}}"fc1@N=1", "fc2@N=1", "fc3@N=1", "probs@N=1"]]
// CHECK: emit.program @"mlp@N=540"
// CHECK: emit.kernel @"probs@N=540.code" parallel [540] reduce [10]
// CHECK: emit.ledger

builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v4", {threads = 1 : i64, libraries = {}}>, aicf.policy = {}} {
  emit.program @prepare attributes {phase = "final", arena_bytes = 0 : i64, graphs = [["fc1.pack", "fc2.pack", "fc3.pack"]]} {
    %fc1w = emit.bind param "fc1.weight" binding(direct) : !emit.buffer<128x64xf32, bound>
    %fc1p = emit.bind derived "fc1.weight.packed" binding(direct) : !emit.buffer<128x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>
    %fc2w = emit.bind param "fc2.weight" binding(direct) : !emit.buffer<64x128xf32, bound>
    %fc2p = emit.bind derived "fc2.weight.packed" binding(direct) : !emit.buffer<64x128xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>
    %fc3w = emit.bind param "fc3.weight" binding(direct) : !emit.buffer<10x64xf32, bound>
    %fc3p = emit.bind derived "fc3.weight.packed" binding(direct) : !emit.buffer<10x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>>
    emit.resolved "pack" id(26) name("fc1.pack") src(["fc1"])
      ins(%fc1w : !emit.buffer<128x64xf32, bound>) outs(%fc1p : !emit.buffer<128x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>)
      body(@fc1.pack.body)
      kernel("cpu.pack_b", {version = 1 : i64, determinism = "bitwise", nr = 32 : i64})
      stream(0) after([])
    emit.resolved "pack" id(26) name("fc2.pack") src(["fc2"])
      ins(%fc2w : !emit.buffer<64x128xf32, bound>) outs(%fc2p : !emit.buffer<64x128xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>)
      body(@fc2.pack.body)
      kernel("cpu.pack_b", {version = 1 : i64, determinism = "bitwise", nr = 32 : i64})
      stream(0) after([])
    emit.resolved "pack" id(26) name("fc3.pack") src(["fc3"])
      ins(%fc3w : !emit.buffer<10x64xf32, bound>) outs(%fc3p : !emit.buffer<10x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>>)
      body(@fc3.pack.body)
      kernel("cpu.pack_b", {version = 1 : i64, determinism = "bitwise", nr = 32 : i64})
      stream(0) after([])
  }
  emit.body @fc1.pack.body {
  ^bb0(%w: tensor<128x64xf32>):
    emit.yield %w : tensor<128x64xf32>
  }
  emit.body @fc2.pack.body {
  ^bb0(%w: tensor<64x128xf32>):
    emit.yield %w : tensor<64x128xf32>
  }
  emit.body @fc3.pack.body {
  ^bb0(%w: tensor<10x64xf32>):
    emit.yield %w : tensor<10x64xf32>
  }
  emit.program @"mlp@N=1" attributes {phase = "final", arena_bytes = 768 : i64, graphs = [["fc1@N=1", "fc2@N=1", "fc3@N=1", "probs@N=1"]]} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<1x64xf32, bound>
    %fc1p = emit.bind derived "fc1.weight.packed" binding(direct) : !emit.buffer<128x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>
    %fc1b = emit.bind param "fc1.bias" binding(direct) : !emit.buffer<128xf32, bound>
    %fc2p = emit.bind derived "fc2.weight.packed" binding(direct) : !emit.buffer<64x128xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>
    %fc2b = emit.bind param "fc2.bias" binding(direct) : !emit.buffer<64xf32, bound>
    %fc3p = emit.bind derived "fc3.weight.packed" binding(direct) : !emit.buffer<10x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>>
    %fc3b = emit.bind param "fc3.bias" binding(direct) : !emit.buffer<10xf32, bound>
    %y = emit.bind output "probabilities" binding(direct) : !emit.buffer<1x10xf32, bound>
    %h1 = emit.slot offset(0) size(512) align(64) : !emit.buffer<1x128xf32, arena>
    %h2 = emit.slot offset(512) size(256) align(64) : !emit.buffer<1x64xf32, arena>
    %h3 = emit.slot offset(0) size(40) align(64) : !emit.buffer<1x10xf32, arena>
    emit.resolved "gemm_epilogue" id(17) name("fc1@N=1") src(["fc1"])
      ins(%x, %fc1p, %fc1b : !emit.buffer<1x64xf32, bound>, !emit.buffer<128x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>, !emit.buffer<128xf32, bound>) outs(%h1 : !emit.buffer<1x128xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "relu"} schema("gemm_epilogue.v1") blob("0x0001010001")
      body(@"fc1@N=1.body")
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 1 : i64, nr = 32 : i64, isa = "avx512f", threads = 1 : i64, combine = "k ascending", layouts = [unit, #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>, unit, unit]})
      expected_us(1.5)
      constraints {may_alias = []}
      stream(0) after([])
    emit.resolved "gemm_epilogue" id(17) name("fc2@N=1") src(["fc2"])
      ins(%h1, %fc2p, %fc2b : !emit.buffer<1x128xf32, arena>, !emit.buffer<64x128xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>, !emit.buffer<64xf32, bound>) outs(%h2 : !emit.buffer<1x64xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "relu"} schema("gemm_epilogue.v1") blob("0x0001010001")
      body(@"fc2@N=1.body")
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 1 : i64, nr = 32 : i64, isa = "avx512f", threads = 1 : i64, combine = "k ascending", layouts = [unit, #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>, unit, unit]})
      expected_us(1.5)
      constraints {may_alias = []}
      stream(0) after(["fc1@N=1" full])
    emit.resolved "gemm_epilogue" id(17) name("fc3@N=1") src(["fc3"])
      ins(%h2, %fc3p, %fc3b : !emit.buffer<1x64xf32, arena>, !emit.buffer<10x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>>, !emit.buffer<10xf32, bound>) outs(%h3 : !emit.buffer<1x10xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "none"} schema("gemm_epilogue.v1") blob("0x0001010000")
      body(@"fc3@N=1.body")
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 1 : i64, nr = 32 : i64, isa = "avx512f", threads = 1 : i64, combine = "k ascending", layouts = [unit, #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>, unit, unit]})
      expected_us(1.5)
      constraints {may_alias = []}
      stream(0) after(["fc2@N=1" full])
    emit.resolved "softmax" id(18) name("probs@N=1") src(["probs"])
      ins(%h3 : !emit.buffer<1x10xf32, arena>) outs(%y : !emit.buffer<1x10xf32, bound>)
      attrs {axis = 1 : i64} schema("softmax.v1") blob("0x0100000000000000")
      body(@"probs@N=1.body") code(@"probs@N=1.code")
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise", vector = 16 : i64, lanes_combine = "pairwise"})
      constraints {may_alias = [[0 : i64, 0 : i64]]}
      stream(0) after(["fc3@N=1" full])
  }
  emit.body @"fc1@N=1.body" {
  ^bb0(%x: tensor<1x64xf32>, %w: tensor<128x64xf32>, %b: tensor<128xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<1x64xf32>, tensor<128x64xf32>) -> tensor<1x128xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<128xf32> -> tensor<1x128xf32>
    %s = logical.add %p, %bb : tensor<1x128xf32>
    %z = logical.constant dense<0.000000e+00> : tensor<1x128xf32>
    %r = logical.max %s, %z : tensor<1x128xf32>
    emit.yield %r : tensor<1x128xf32>
  }
  emit.body @"fc2@N=1.body" {
  ^bb0(%x: tensor<1x128xf32>, %w: tensor<64x128xf32>, %b: tensor<64xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<1x128xf32>, tensor<64x128xf32>) -> tensor<1x64xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<64xf32> -> tensor<1x64xf32>
    %s = logical.add %p, %bb : tensor<1x64xf32>
    %z = logical.constant dense<0.000000e+00> : tensor<1x64xf32>
    %r = logical.max %s, %z : tensor<1x64xf32>
    emit.yield %r : tensor<1x64xf32>
  }
  emit.body @"fc3@N=1.body" {
  ^bb0(%x: tensor<1x64xf32>, %w: tensor<10x64xf32>, %b: tensor<10xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<1x64xf32>, tensor<10x64xf32>) -> tensor<1x10xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<10xf32> -> tensor<1x10xf32>
    %s = logical.add %p, %bb : tensor<1x10xf32>
    emit.yield %s : tensor<1x10xf32>
  }
  emit.body @"probs@N=1.body" {
  ^bb0(%x: tensor<1x10xf32>):
    %m = logical.reduce_max %x {axes = [1], keepdims} : tensor<1x10xf32> -> tensor<1x1xf32>
    %mb = logical.broadcast %m {dimensions = [0, 1]} : tensor<1x1xf32> -> tensor<1x10xf32>
    %d = logical.sub %x, %mb : tensor<1x10xf32>
    %e = logical.exp %d : tensor<1x10xf32>
    %s = logical.reduce_sum %e {axes = [1], keepdims} : tensor<1x10xf32> -> tensor<1x1xf32>
    %sb = logical.broadcast %s {dimensions = [0, 1]} : tensor<1x1xf32> -> tensor<1x10xf32>
    %y = logical.div %e, %sb : tensor<1x10xf32>
    emit.yield %y : tensor<1x10xf32>
  }
  emit.kernel @"probs@N=1.code" parallel [1] reduce [10] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
  ^bb0(%x: f32):
    %m = emit.phase -> f32 {
      %0 = emit.reduce "max" %x : f32
      emit.yield %0 : f32
    }
    %s = emit.phase -> f32 {
      %a = arith.subf %x, %m : f32
      %b = math.exp %a : f32
      %c = emit.reduce "sum" %b : f32
      emit.yield %c : f32
    }
    emit.phase {
      %a_1 = arith.subf %x, %m : f32
      %b_1 = math.exp %a_1 : f32
      %y = arith.divf %b_1, %s : f32
      emit.store %y, 0 : f32
      emit.yield
    }
  }
  emit.program @"mlp@N=540" attributes {phase = "final", arena_bytes = 414720 : i64, graphs = [["fc1@N=540", "fc2@N=540", "fc3@N=540", "probs@N=540"]]} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<540x64xf32, bound>
    %fc1p = emit.bind derived "fc1.weight.packed" binding(direct) : !emit.buffer<128x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>
    %fc1b = emit.bind param "fc1.bias" binding(direct) : !emit.buffer<128xf32, bound>
    %fc2p = emit.bind derived "fc2.weight.packed" binding(direct) : !emit.buffer<64x128xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>
    %fc2b = emit.bind param "fc2.bias" binding(direct) : !emit.buffer<64xf32, bound>
    %fc3p = emit.bind derived "fc3.weight.packed" binding(direct) : !emit.buffer<10x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>>
    %fc3b = emit.bind param "fc3.bias" binding(direct) : !emit.buffer<10xf32, bound>
    %y = emit.bind output "probabilities" binding(direct) : !emit.buffer<540x10xf32, bound>
    %h1 = emit.slot offset(0) size(276480) align(64) : !emit.buffer<540x128xf32, arena>
    %h2 = emit.slot offset(276480) size(138240) align(64) : !emit.buffer<540x64xf32, arena>
    %h3 = emit.slot offset(0) size(21600) align(64) : !emit.buffer<540x10xf32, arena>
    emit.resolved "gemm_epilogue" id(17) name("fc1@N=540") src(["fc1"])
      ins(%x, %fc1p, %fc1b : !emit.buffer<540x64xf32, bound>, !emit.buffer<128x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>, !emit.buffer<128xf32, bound>) outs(%h1 : !emit.buffer<540x128xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "relu"} schema("gemm_epilogue.v1") blob("0x0001010001")
      body(@"fc1@N=540.body")
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 14 : i64, nr = 32 : i64, isa = "avx512f", threads = 1 : i64, combine = "k ascending", layouts = [unit, #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>, unit, unit]})
      expected_us(1.5)
      constraints {may_alias = []}
      stream(0) after([])
    emit.resolved "gemm_epilogue" id(17) name("fc2@N=540") src(["fc2"])
      ins(%h1, %fc2p, %fc2b : !emit.buffer<540x128xf32, arena>, !emit.buffer<64x128xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>>, !emit.buffer<64xf32, bound>) outs(%h2 : !emit.buffer<540x64xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "relu"} schema("gemm_epilogue.v1") blob("0x0001010001")
      body(@"fc2@N=540.body")
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 14 : i64, nr = 32 : i64, isa = "avx512f", threads = 1 : i64, combine = "k ascending", layouts = [unit, #emit.layout<"packed_b", {nr = 32 : i64, bytes = 32768 : i64}>, unit, unit]})
      expected_us(1.5)
      constraints {may_alias = []}
      stream(0) after(["fc1@N=540" full])
    emit.resolved "gemm_epilogue" id(17) name("fc3@N=540") src(["fc3"])
      ins(%h2, %fc3p, %fc3b : !emit.buffer<540x64xf32, arena>, !emit.buffer<10x64xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>>, !emit.buffer<10xf32, bound>) outs(%h3 : !emit.buffer<540x10xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "none"} schema("gemm_epilogue.v1") blob("0x0001010000")
      body(@"fc3@N=540.body")
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 14 : i64, nr = 32 : i64, isa = "avx512f", threads = 1 : i64, combine = "k ascending", layouts = [unit, #emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>, unit, unit]})
      expected_us(1.5)
      constraints {may_alias = []}
      stream(0) after(["fc2@N=540" full])
    emit.resolved "softmax" id(18) name("probs@N=540") src(["probs"])
      ins(%h3 : !emit.buffer<540x10xf32, arena>) outs(%y : !emit.buffer<540x10xf32, bound>)
      attrs {axis = 1 : i64} schema("softmax.v1") blob("0x0100000000000000")
      body(@"probs@N=540.body") code(@"probs@N=540.code")
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise", vector = 16 : i64, lanes_combine = "pairwise"})
      constraints {may_alias = [[0 : i64, 0 : i64]]}
      stream(0) after(["fc3@N=540" full])
  }
  emit.body @"fc1@N=540.body" {
  ^bb0(%x: tensor<540x64xf32>, %w: tensor<128x64xf32>, %b: tensor<128xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<540x64xf32>, tensor<128x64xf32>) -> tensor<540x128xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<128xf32> -> tensor<540x128xf32>
    %s = logical.add %p, %bb : tensor<540x128xf32>
    %z = logical.constant dense<0.000000e+00> : tensor<540x128xf32>
    %r = logical.max %s, %z : tensor<540x128xf32>
    emit.yield %r : tensor<540x128xf32>
  }
  emit.body @"fc2@N=540.body" {
  ^bb0(%x: tensor<540x128xf32>, %w: tensor<64x128xf32>, %b: tensor<64xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<540x128xf32>, tensor<64x128xf32>) -> tensor<540x64xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<64xf32> -> tensor<540x64xf32>
    %s = logical.add %p, %bb : tensor<540x64xf32>
    %z = logical.constant dense<0.000000e+00> : tensor<540x64xf32>
    %r = logical.max %s, %z : tensor<540x64xf32>
    emit.yield %r : tensor<540x64xf32>
  }
  emit.body @"fc3@N=540.body" {
  ^bb0(%x: tensor<540x64xf32>, %w: tensor<10x64xf32>, %b: tensor<10xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<540x64xf32>, tensor<10x64xf32>) -> tensor<540x10xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<10xf32> -> tensor<540x10xf32>
    %s = logical.add %p, %bb : tensor<540x10xf32>
    emit.yield %s : tensor<540x10xf32>
  }
  emit.body @"probs@N=540.body" {
  ^bb0(%x: tensor<540x10xf32>):
    %m = logical.reduce_max %x {axes = [1], keepdims} : tensor<540x10xf32> -> tensor<540x1xf32>
    %mb = logical.broadcast %m {dimensions = [0, 1]} : tensor<540x1xf32> -> tensor<540x10xf32>
    %d = logical.sub %x, %mb : tensor<540x10xf32>
    %e = logical.exp %d : tensor<540x10xf32>
    %s = logical.reduce_sum %e {axes = [1], keepdims} : tensor<540x10xf32> -> tensor<540x1xf32>
    %sb = logical.broadcast %s {dimensions = [0, 1]} : tensor<540x1xf32> -> tensor<540x10xf32>
    %y = logical.div %e, %sb : tensor<540x10xf32>
    emit.yield %y : tensor<540x10xf32>
  }
  emit.kernel @"probs@N=540.code" parallel [540] reduce [10] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
  ^bb0(%x: f32):
    %m = emit.phase -> f32 {
      %0 = emit.reduce "max" %x : f32
      emit.yield %0 : f32
    }
    %s = emit.phase -> f32 {
      %a = arith.subf %x, %m : f32
      %b = math.exp %a : f32
      %c = emit.reduce "sum" %b : f32
      emit.yield %c : f32
    }
    emit.phase {
      %a_1 = arith.subf %x, %m : f32
      %b_1 = math.exp %a_1 : f32
      %y = arith.divf %b_1, %s : f32
      emit.store %y, 0 : f32
      emit.yield
    }
  }
  emit.ledger {
    emit.decision "specialize-shapes" ["fc1", "fc2", "fc3", "probs"] choice "N = 1, 540" because "option dims"
    emit.decision "select-kernels" ["fc1@N=1"] choice "cpu.gemm" because "cheapest legal" rejected {cpu.gemm_blas = "unmeasured", cpu.generated = "contraction"} cost {us = 4.000000e-01 : f64}
  }
}
