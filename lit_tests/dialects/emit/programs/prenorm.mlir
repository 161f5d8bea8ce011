// RUN: aicf-opt %s > %t.once
// RUN: aicf-opt %t.once > %t.twice
// RUN: diff %t.once %t.twice
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// A pre-norm MLP block: layer_norm, GELU epilogue, residual in place, two streams.

// CHECK: emit.program @prepare
// CHECK: emit.program @block
// CHECK: stream(1) after([])
// CHECK: stream(0) after(["fc1" full, "residual.copy" full])
// CHECK: emit.kernel @ln.code parallel [128] reduce [512]
// CHECK: emit.kernel @fc1.epilogue parallel [128, 2048] reduce []
// CHECK: emit.ledger

builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v4", {threads = 1 : i64, libraries = {}}>, aicf.policy = {}} {
  emit.program @prepare attributes {phase = "final", arena_bytes = 0 : i64, graphs = [["fc1.pack", "fc2.pack"]]} {
    %w1 = emit.bind param "fc1.weight" binding(direct) : !emit.buffer<2048x512xf32, bound>
    %w2 = emit.bind param "fc2.weight" binding(direct) : !emit.buffer<512x2048xf32, bound>
    %p1 = emit.bind derived "fc1.weight.packed" binding(direct) : !emit.buffer<2048x512xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>
    %p2 = emit.bind derived "fc2.weight.packed" binding(direct) : !emit.buffer<512x2048xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>
    emit.resolved "pack" id(26) name("fc1.pack") src(["fc1"])
      ins(%w1 : !emit.buffer<2048x512xf32, bound>) outs(%p1 : !emit.buffer<2048x512xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>)
      body(@fc1.pack.body)
      kernel("cpu.pack_b", {version = 1 : i64, determinism = "bitwise", nr = 32 : i64})
      stream(0) after([])
    emit.resolved "pack" id(26) name("fc2.pack") src(["fc2"])
      ins(%w2 : !emit.buffer<512x2048xf32, bound>) outs(%p2 : !emit.buffer<512x2048xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>)
      body(@fc2.pack.body)
      kernel("cpu.pack_b", {version = 1 : i64, determinism = "bitwise", nr = 32 : i64})
      stream(0) after([])
  }
  emit.body @fc1.pack.body {
  ^bb0(%w: tensor<2048x512xf32>):
    emit.yield %w : tensor<2048x512xf32>
  }
  emit.body @fc2.pack.body {
  ^bb0(%w: tensor<512x2048xf32>):
    emit.yield %w : tensor<512x2048xf32>
  }
  emit.program @block attributes {phase = "final", arena_bytes = 1310720 : i64, graphs = [["residual.copy", "ln", "fc1", "fc2"]]} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<128x512xf32, bound>
    %g = emit.bind param "ln.scale" binding(direct) : !emit.buffer<512xf32, bound>
    %c = emit.bind param "ln.bias" binding(direct) : !emit.buffer<512xf32, bound>
    %p1 = emit.bind derived "fc1.weight.packed" binding(direct) : !emit.buffer<2048x512xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>
    %b1 = emit.bind param "fc1.bias" binding(direct) : !emit.buffer<2048xf32, bound>
    %p2 = emit.bind derived "fc2.weight.packed" binding(direct) : !emit.buffer<512x2048xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>
    %b2 = emit.bind param "fc2.bias" binding(direct) : !emit.buffer<512xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<128x512xf32, bound>
    %n = emit.slot offset(0) size(262144) align(64) : !emit.buffer<128x512xf32, arena>
    %h = emit.slot offset(262144) size(1048576) align(64) : !emit.buffer<128x2048xf32, arena>
    emit.resolved "copy" id(8) name("residual.copy") src(["residual"])
      ins(%x : !emit.buffer<128x512xf32, bound>) outs(%y : !emit.buffer<128x512xf32, bound>)
      body(@residual.copy.body)
      kernel("cpu.copy", {version = 1 : i64, determinism = "bitwise"})
      stream(1) after([])
    emit.resolved "layernorm_fwd" id(13) name("ln") src(["ln"])
      ins(%x, %g, %c : !emit.buffer<128x512xf32, bound>, !emit.buffer<512xf32, bound>, !emit.buffer<512xf32, bound>) outs(%n : !emit.buffer<128x512xf32, arena>)
      attrs {axis = 1 : i64, epsilon = 1.000000e-05 : f64} schema("layernorm_fwd.v1") blob("0x0100000000000000f168e388b5f8e43e")
      body(@ln.body) code(@ln.code)
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise", vector = 16 : i64, lanes_combine = "pairwise"})
      constraints {may_alias = [[0 : i64, 0 : i64]]}
      stream(0) after([])
    emit.resolved "gemm_epilogue" id(17) name("fc1") src(["fc1", "act"])
      ins(%n, %p1, %b1 : !emit.buffer<128x512xf32, arena>, !emit.buffer<2048x512xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>, !emit.buffer<2048xf32, bound>) outs(%h : !emit.buffer<128x2048xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "gelu"} schema("gemm_epilogue.v1") blob("0x0001010002")
      body(@fc1.body) code(@fc1.epilogue)
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 14 : i64, nr = 32 : i64, kc = 256 : i64})
      stream(0) after(["ln" full])
    emit.resolved "gemm_epilogue" id(17) name("fc2") src(["fc2", "residual"])
      ins(%h, %p2, %b2, %y : !emit.buffer<128x2048xf32, arena>, !emit.buffer<512x2048xf32, const, layout #emit.layout<"packed_b", {nr = 32 : i64, bytes = 4194304 : i64}>>, !emit.buffer<512xf32, bound>, !emit.buffer<128x512xf32, bound>) outs(%y : !emit.buffer<128x512xf32, bound>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = true, activation = "none"} schema("gemm_epilogue.v1") blob("0x0001010100")
      body(@fc2.body)
      kernel("cpu.gemm", {version = 1 : i64, determinism = "bitwise", mr = 14 : i64, nr = 32 : i64, kc = 256 : i64})
      constraints {may_alias = [[0 : i64, 3 : i64]]}
      stream(0) after(["fc1" full, "residual.copy" full])
  }
  emit.body @residual.copy.body {
  ^bb0(%x: tensor<128x512xf32>):
    emit.yield %x : tensor<128x512xf32>
  }
  emit.body @ln.body {
  ^bb0(%x: tensor<128x512xf32>, %g: tensor<512xf32>, %c: tensor<512xf32>):
    %inv = logical.constant dense<5.120000e+02> : tensor<128x1xf32>
    %eps = logical.constant dense<1.000000e-05> : tensor<128x1xf32>
    %s = logical.reduce_sum %x {axes = [1], keepdims} : tensor<128x512xf32> -> tensor<128x1xf32>
    %mu = logical.div %s, %inv : tensor<128x1xf32>
    %mub = logical.broadcast %mu {dimensions = [0, 1]} : tensor<128x1xf32> -> tensor<128x512xf32>
    %d = logical.sub %x, %mub : tensor<128x512xf32>
    %q = logical.mul %d, %d : tensor<128x512xf32>
    %qs = logical.reduce_sum %q {axes = [1], keepdims} : tensor<128x512xf32> -> tensor<128x1xf32>
    %v = logical.div %qs, %inv : tensor<128x1xf32>
    %ve = logical.add %v, %eps : tensor<128x1xf32>
    %r = logical.rsqrt %ve : tensor<128x1xf32>
    %rb = logical.broadcast %r {dimensions = [0, 1]} : tensor<128x1xf32> -> tensor<128x512xf32>
    %gb = logical.broadcast %g {dimensions = [1]} : tensor<512xf32> -> tensor<128x512xf32>
    %cb = logical.broadcast %c {dimensions = [1]} : tensor<512xf32> -> tensor<128x512xf32>
    %t = logical.mul %d, %rb : tensor<128x512xf32>
    %u = logical.mul %t, %gb : tensor<128x512xf32>
    %y = logical.add %u, %cb : tensor<128x512xf32>
    emit.yield %y : tensor<128x512xf32>
  }
  emit.kernel @ln.code parallel [128] reduce [512] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
  ^bb0(%x: f32, %g: f32, %c: f32):
    %s = emit.phase -> f32 {
      %a = emit.reduce "sum" %x : f32
      emit.yield %a : f32
    }
    %mu = emit.phase -> f32 {
      %n = arith.constant 5.120000e+02 : f32
      %m = arith.divf %s, %n : f32
      emit.yield %m : f32
    }
    %q = emit.phase -> f32 {
      %d = arith.subf %x, %mu : f32
      %d2 = arith.mulf %d, %d : f32
      %a_1 = emit.reduce "sum" %d2 : f32
      emit.yield %a_1 : f32
    }
    %r = emit.phase -> f32 {
      %n_1 = arith.constant 5.120000e+02 : f32
      %e = arith.constant 1.000000e-05 : f32
      %v = arith.divf %q, %n_1 : f32
      %ve = arith.addf %v, %e : f32
      %k = math.rsqrt %ve : f32
      emit.yield %k : f32
    }
    emit.phase {
      %d_1 = arith.subf %x, %mu : f32
      %t = arith.mulf %d_1, %r : f32
      %u = arith.mulf %t, %g : f32
      %y = arith.addf %u, %c : f32
      emit.store %y, 0 : f32
      emit.yield
    }
  }
  emit.body @fc1.body {
  ^bb0(%x: tensor<128x512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<128x512xf32>, tensor<2048x512xf32>) -> tensor<128x2048xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<2048xf32> -> tensor<128x2048xf32>
    %s = logical.add %p, %bb : tensor<128x2048xf32>
    %k = logical.constant dense<0.707106769> : tensor<128x2048xf32>
    %one = logical.constant dense<1.000000e+00> : tensor<128x2048xf32>
    %half = logical.constant dense<5.000000e-01> : tensor<128x2048xf32>
    %t = logical.mul %s, %k : tensor<128x2048xf32>
    %e = logical.erf %t : tensor<128x2048xf32>
    %e1 = logical.add %e, %one : tensor<128x2048xf32>
    %h = logical.mul %s, %half : tensor<128x2048xf32>
    %y = logical.mul %h, %e1 : tensor<128x2048xf32>
    emit.yield %y : tensor<128x2048xf32>
  }
  emit.kernel @fc1.epilogue parallel [128, 2048] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
  ^bb0(%acc: f32, %b: f32):
    emit.phase {
      %s = arith.addf %acc, %b : f32
      %k = arith.constant 0.707106769 : f32
      %one = arith.constant 1.000000e+00 : f32
      %half = arith.constant 5.000000e-01 : f32
      %t = arith.mulf %s, %k : f32
      %e = math.erf %t : f32
      %e1 = arith.addf %e, %one : f32
      %h = arith.mulf %s, %half : f32
      %y = arith.mulf %h, %e1 : f32
      emit.store %y, 0 : f32
      emit.yield
    }
  }
  emit.body @fc2.body {
  ^bb0(%x: tensor<128x2048xf32>, %w: tensor<512x2048xf32>, %b: tensor<512xf32>, %r: tensor<128x512xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<128x2048xf32>, tensor<512x2048xf32>) -> tensor<128x512xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<512xf32> -> tensor<128x512xf32>
    %s = logical.add %p, %bb : tensor<128x512xf32>
    %y = logical.add %s, %r : tensor<128x512xf32>
    emit.yield %y : tensor<128x512xf32>
  }
  emit.ledger {
    emit.decision "fuse-epilogues" ["fc2", "residual"] choice "one group" because "cpu.gemm adds a residual" rejected {apart = "one more pass over 128x512"} cost {us = 3.100000e+02 : f64}
    emit.decision "schedule" ["residual.copy"] choice "stream 1" because "independent of ln and fc1"
  }
}
