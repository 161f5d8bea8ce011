// RUN: aicf-opt %s > %t.once
// RUN: aicf-opt %t.once > %t.twice
// RUN: diff %t.once %t.twice
// RUN: aicf-opt %s --print-op-generic | aicf-opt | filecheck %s

// One SGD step: gradients, and the update of parameters in place.

// CHECK: emit.program @step
// CHECK: emit.bind param "w" binding(direct) updated
// CHECK: emit.resolved "sgd_step" id(7) name("w.step") src(["w.scaled", "w.new"])
// CHECK: emit.kernel @w.step.code parallel [4, 16] reduce []
// CHECK: emit.ledger

builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v4", {threads = 1 : i64, libraries = {}}>, aicf.policy = {}} {
  emit.program @step attributes {phase = "final", arena_bytes = 832 : i64, graphs = [["pred", "grad", "dw", "db", "w.step", "b.step"]]} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<32x16xf32, bound>
    %t = emit.bind input "t" binding(direct) : !emit.buffer<32x4xf32, bound>
    %w = emit.bind param "w" binding(direct) updated : !emit.buffer<4x16xf32, bound>
    %b = emit.bind param "b" binding(direct) updated : !emit.buffer<4xf32, bound>
    %lr = emit.bind meta "lr" binding(direct) : !emit.buffer<f32, bound>
    %y = emit.slot offset(0) size(512) align(64) : !emit.buffer<32x4xf32, arena>
    %dw = emit.slot offset(512) size(256) align(64) : !emit.buffer<4x16xf32, arena>
    %db = emit.slot offset(768) size(16) align(64) : !emit.buffer<4xf32, arena>
    emit.resolved "gemm_epilogue" id(17) name("pred") src(["pred"])
      ins(%x, %w, %b : !emit.buffer<32x16xf32, bound>, !emit.buffer<4x16xf32, bound>, !emit.buffer<4xf32, bound>) outs(%y : !emit.buffer<32x4xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "none"} schema("gemm_epilogue.v1") blob("0x0001010000")
      body(@pred.body)
      kernel("cpu.gemm_strided", {version = 1 : i64, determinism = "bitwise"})
      stream(0) after([])
    emit.resolved "mse_grad" id(5) name("grad") src(["diff", "grad"])
      ins(%y, %t : !emit.buffer<32x4xf32, arena>, !emit.buffer<32x4xf32, bound>) outs(%y : !emit.buffer<32x4xf32, arena>)
      attrs {reduction = "mean", grad = false} schema("mse_grad.v1") blob("0x0100")
      body(@grad.body) code(@grad.code)
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"})
      constraints {may_alias = [[0 : i64, 0 : i64], [0 : i64, 1 : i64]]}
      stream(0) after(["pred" full])
    emit.resolved "gemm" id(2) name("dw") src(["dw"])
      ins(%y, %x : !emit.buffer<32x4xf32, arena>, !emit.buffer<32x16xf32, bound>) outs(%dw : !emit.buffer<4x16xf32, arena>)
      attrs {transpose_a = true, transpose_b = false} schema("gemm.v1") blob("0x0100")
      body(@dw.body)
      kernel("cpu.gemm_strided", {version = 1 : i64, determinism = "bitwise"})
      stream(0) after(["grad" full])
    emit.resolved "reduce_sum" id(4) name("db") src(["db"])
      ins(%y : !emit.buffer<32x4xf32, arena>) outs(%db : !emit.buffer<4xf32, arena>)
      attrs {first_axis = 0 : i64, axis_count = 1 : i64, keepdims = false} schema("reduce_sum.v1") blob("0x0000000000000000010000000000000000")
      body(@db.body) code(@db.code)
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"})
      stream(0) after(["grad" full])
    emit.resolved "sgd_step" id(7) name("w.step") src(["w.scaled", "w.new"])
      ins(%w, %dw, %lr : !emit.buffer<4x16xf32, bound>, !emit.buffer<4x16xf32, arena>, !emit.buffer<f32, bound>) outs(%w : !emit.buffer<4x16xf32, bound>)
      attrs {learning_rate_operand = 2 : i64} schema("sgd_step.v1") blob("0x0200000000000000")
      body(@w.step.body) code(@w.step.code)
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"})
      constraints {may_alias = [[0 : i64, 0 : i64], [0 : i64, 1 : i64]]}
      stream(0) after(["dw" full])
    emit.resolved "sgd_step" id(7) name("b.step") src(["b.scaled", "b.new"])
      ins(%b, %db, %lr : !emit.buffer<4xf32, bound>, !emit.buffer<4xf32, arena>, !emit.buffer<f32, bound>) outs(%b : !emit.buffer<4xf32, bound>)
      attrs {learning_rate_operand = 2 : i64} schema("sgd_step.v1") blob("0x0200000000000000")
      body(@b.step.body) code(@b.step.code)
      kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"})
      constraints {may_alias = [[0 : i64, 0 : i64], [0 : i64, 1 : i64]]}
      stream(0) after(["db" full])
  }
  emit.body @pred.body {
  ^bb0(%x: tensor<32x16xf32>, %w: tensor<4x16xf32>, %b: tensor<4xf32>):
    %p = logical.matmul %x, %w {transpose_b} : (tensor<32x16xf32>, tensor<4x16xf32>) -> tensor<32x4xf32>
    %bb = logical.broadcast %b {dimensions = [1]} : tensor<4xf32> -> tensor<32x4xf32>
    %s = logical.add %p, %bb : tensor<32x4xf32>
    emit.yield %s : tensor<32x4xf32>
  }
  emit.body @grad.body {
  ^bb0(%y: tensor<32x4xf32>, %t: tensor<32x4xf32>):
    %k = logical.constant dense<1.562500e-02> : tensor<32x4xf32>
    %d = logical.sub %y, %t : tensor<32x4xf32>
    %g = logical.mul %d, %k : tensor<32x4xf32>
    emit.yield %g : tensor<32x4xf32>
  }
  emit.kernel @grad.code parallel [32, 4] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
  ^bb0(%y: f32, %t: f32):
    emit.phase {
      %k = arith.constant 1.562500e-02 : f32
      %d = arith.subf %y, %t : f32
      %g = arith.mulf %d, %k : f32
      emit.store %g, 0 : f32
      emit.yield
    }
  }
  emit.body @dw.body {
  ^bb0(%g: tensor<32x4xf32>, %x: tensor<32x16xf32>):
    %p = logical.matmul %g, %x {transpose_a} : (tensor<32x4xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
    emit.yield %p : tensor<4x16xf32>
  }
  emit.body @db.body {
  ^bb0(%g: tensor<32x4xf32>):
    %p = logical.reduce_sum %g {axes = [0]} : tensor<32x4xf32> -> tensor<4xf32>
    emit.yield %p : tensor<4xf32>
  }
  emit.kernel @db.code parallel [4] reduce [32] ins [affine_map<(d0, d1) -> (d1, d0)>] outs [affine_map<(d0, d1) -> (d0)>] {
  ^bb0(%g: f32):
    %s = emit.phase -> f32 {
      %a = emit.reduce "sum" %g : f32
      emit.yield %a : f32
    }
    emit.phase {
      emit.store %s, 0 : f32
      emit.yield
    }
  }
  emit.body @w.step.body {
  ^bb0(%w: tensor<4x16xf32>, %g: tensor<4x16xf32>, %lr: tensor<f32>):
    %l = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4x16xf32>
    %s = logical.mul %l, %g : tensor<4x16xf32>
    %n = logical.sub %w, %s : tensor<4x16xf32>
    emit.yield %n : tensor<4x16xf32>
  }
  emit.kernel @w.step.code parallel [4, 16] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
  ^bb0(%w: f32, %g: f32, %lr: f32):
    emit.phase {
      %s = arith.mulf %lr, %g : f32
      %n = arith.subf %w, %s : f32
      emit.store %n, 0 : f32
      emit.yield
    }
  }
  emit.body @b.step.body {
  ^bb0(%w: tensor<4xf32>, %g: tensor<4xf32>, %lr: tensor<f32>):
    %l = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
    %s = logical.mul %l, %g : tensor<4xf32>
    %n = logical.sub %w, %s : tensor<4xf32>
    emit.yield %n : tensor<4xf32>
  }
  emit.kernel @b.step.code parallel [4] reduce [] ins [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>] outs [affine_map<(d0) -> (d0)>] {
  ^bb0(%w: f32, %g: f32, %lr: f32):
    emit.phase {
      %s = arith.mulf %lr, %g : f32
      %n = arith.subf %w, %s : f32
      emit.store %n, 0 : f32
      emit.yield
    }
  }
  emit.ledger {
    emit.decision "decide-inplace" ["w.step"] choice "in place on w" because "all readers of w happen before"
  }
}
