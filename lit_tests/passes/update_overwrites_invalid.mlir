// RUN: aicf-opt %s --split-input-file --verify-diagnostics -p 'verify-emit,verify-order' | filecheck %s

// Overwriting by an update of several tensors that was written by hand: each part may overwrite its own elements at
// their places, after all else that reads them.

// New values of one part over the gradient of the other, which that still reads.
// CHECK: error: emit.resolved: instruction 'step' (from w.new, b.new): result 0 overlaps operand 3, which its kernel does not permit; give the result a slot of its own
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
  emit.kernel @step.code parallel [12] reduce [] ins [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] attributes {emit.parts = [{program = 0 : i64, elements = 8 : i64, ins = [1 : i64, 2 : i64], outs = [0 : i64]}, {program = 0 : i64, elements = 4 : i64, ins = [3 : i64, 4 : i64], outs = [1 : i64]}]} {
  ^bb0(%lr: f32, %g: f32, %p: f32):
    emit.phase {
      %change = arith.mulf %lr, %g : f32
      %new = arith.subf %p, %change : f32
      emit.store %new, 0 : f32
      emit.yield
    }
  }
  emit.body @step.body {
  ^bb0(%lr: tensor<f32>, %gw: tensor<8xf32>, %w: tensor<8xf32>, %gb: tensor<4xf32>, %b: tensor<4xf32>):
    %rw = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<8xf32>
    %cw = logical.mul %rw, %gw : tensor<8xf32>
    %nw = logical.sub %w, %cw : tensor<8xf32>
    %rb = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
    %cb = logical.mul %rb, %gb : tensor<4xf32>
    %nb = logical.sub %b, %cb : tensor<4xf32>
    emit.yield %nw, %nb : tensor<8xf32>, tensor<4xf32>
  }
  emit.program @another_part attributes {phase = "inplace"} {
    %lr = emit.bind meta "lr" : !emit.buffer<f32, bound>
    %w = emit.bind param "w" updated : !emit.buffer<8xf32, bound>
    %b = emit.bind param "b" updated : !emit.buffer<4xf32, bound>
    %gw = emit.bind input "gw" : !emit.buffer<8xf32, bound>
    %gb = emit.bind input "gb" : !emit.buffer<4xf32, bound>
    %s = emit.slot : !emit.buffer<8xf32, arena>
    %half = emit.view %s offset(0) : !emit.buffer<8xf32, arena> to !emit.buffer<4xf32, arena>
    emit.resolved "sgd_step" id(7) name("step") src(["w.new", "b.new"])
      ins(%lr, %gw, %w, %half, %b : !emit.buffer<f32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, arena>, !emit.buffer<4xf32, bound>) outs(%s, %b : !emit.buffer<8xf32, arena>, !emit.buffer<4xf32, bound>)
      attrs {learning_rate_operand = 0 : i64} schema("sgd_step.v1") blob("0x0000000000000000")
      body(@step.body) code(@step.code)
      kernel("cpu.multi_tensor", {version = 2 : i64, determinism = "bitwise", threads = 1 : i64, subnormals = "zero", parts = [{vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}, {vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}]})
      constraints {may_alias = [[0 : i64, 1 : i64], [0 : i64, 2 : i64], [1 : i64, 3 : i64], [1 : i64, 4 : i64]]}
      stream(0) after([])
  }
}

// -----

// A permission that was struck out.
// CHECK: error: emit.resolved: instruction 'step' (from w.new, b.new): result 0 overlaps operand 2, which its kernel does not permit
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
  emit.kernel @step.code parallel [12] reduce [] ins [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] attributes {emit.parts = [{program = 0 : i64, elements = 8 : i64, ins = [1 : i64, 2 : i64], outs = [0 : i64]}, {program = 0 : i64, elements = 4 : i64, ins = [3 : i64, 4 : i64], outs = [1 : i64]}]} {
  ^bb0(%lr: f32, %g: f32, %p: f32):
    emit.phase {
      %change = arith.mulf %lr, %g : f32
      %new = arith.subf %p, %change : f32
      emit.store %new, 0 : f32
      emit.yield
    }
  }
  emit.body @step.body {
  ^bb0(%lr: tensor<f32>, %gw: tensor<8xf32>, %w: tensor<8xf32>, %gb: tensor<4xf32>, %b: tensor<4xf32>):
    %rw = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<8xf32>
    %cw = logical.mul %rw, %gw : tensor<8xf32>
    %nw = logical.sub %w, %cw : tensor<8xf32>
    %rb = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
    %cb = logical.mul %rb, %gb : tensor<4xf32>
    %nb = logical.sub %b, %cb : tensor<4xf32>
    emit.yield %nw, %nb : tensor<8xf32>, tensor<4xf32>
  }
  emit.program @no_permission attributes {phase = "inplace"} {
    %lr = emit.bind meta "lr" : !emit.buffer<f32, bound>
    %w = emit.bind param "w" updated : !emit.buffer<8xf32, bound>
    %b = emit.bind param "b" updated : !emit.buffer<4xf32, bound>
    %gw = emit.bind input "gw" : !emit.buffer<8xf32, bound>
    %gb = emit.bind input "gb" : !emit.buffer<4xf32, bound>
    emit.resolved "sgd_step" id(7) name("step") src(["w.new", "b.new"])
      ins(%lr, %gw, %w, %gb, %b : !emit.buffer<f32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, bound>, !emit.buffer<4xf32, bound>) outs(%w, %b : !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, bound>)
      attrs {learning_rate_operand = 0 : i64} schema("sgd_step.v1") blob("0x0000000000000000")
      body(@step.body) code(@step.code)
      kernel("cpu.multi_tensor", {version = 2 : i64, determinism = "bitwise", threads = 1 : i64, subnormals = "zero", parts = [{vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}, {vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}]})
      constraints {may_alias = [[0 : i64, 1 : i64], [1 : i64, 3 : i64], [1 : i64, 4 : i64]]}
      stream(0) after([])
  }
}

// -----

// What reads the old parameter may run at the same time.
// CHECK: error: emit.resolved: 'step' writes param 'w' that 'backward' may read at the same time
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
  emit.kernel @step.code parallel [12] reduce [] ins [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] attributes {emit.parts = [{program = 0 : i64, elements = 8 : i64, ins = [1 : i64, 2 : i64], outs = [0 : i64]}, {program = 0 : i64, elements = 4 : i64, ins = [3 : i64, 4 : i64], outs = [1 : i64]}]} {
  ^bb0(%lr: f32, %g: f32, %p: f32):
    emit.phase {
      %change = arith.mulf %lr, %g : f32
      %new = arith.subf %p, %change : f32
      emit.store %new, 0 : f32
      emit.yield
    }
  }
  emit.body @step.body {
  ^bb0(%lr: tensor<f32>, %gw: tensor<8xf32>, %w: tensor<8xf32>, %gb: tensor<4xf32>, %b: tensor<4xf32>):
    %rw = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<8xf32>
    %cw = logical.mul %rw, %gw : tensor<8xf32>
    %nw = logical.sub %w, %cw : tensor<8xf32>
    %rb = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
    %cb = logical.mul %rb, %gb : tensor<4xf32>
    %nb = logical.sub %b, %cb : tensor<4xf32>
    emit.yield %nw, %nb : tensor<8xf32>, tensor<4xf32>
  }
  emit.program @still_read attributes {phase = "inplace"} {
    %lr = emit.bind meta "lr" : !emit.buffer<f32, bound>
    %w = emit.bind param "w" updated : !emit.buffer<8xf32, bound>
    %b = emit.bind param "b" updated : !emit.buffer<4xf32, bound>
    %gw = emit.bind input "gw" : !emit.buffer<8xf32, bound>
    %gb = emit.bind input "gb" : !emit.buffer<4xf32, bound>
    %y = emit.bind output "y" : !emit.buffer<8xf32, bound>
    emit.resolved "sgd_step" id(7) name("step") src(["w.new", "b.new"])
      ins(%lr, %gw, %w, %gb, %b : !emit.buffer<f32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, bound>, !emit.buffer<4xf32, bound>) outs(%w, %b : !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, bound>)
      attrs {learning_rate_operand = 0 : i64} schema("sgd_step.v1") blob("0x0000000000000000")
      body(@step.body) code(@step.code)
      kernel("cpu.multi_tensor", {version = 2 : i64, determinism = "bitwise", threads = 1 : i64, subnormals = "zero", parts = [{vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}, {vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}]})
      constraints {may_alias = [[0 : i64, 1 : i64], [0 : i64, 2 : i64], [1 : i64, 3 : i64], [1 : i64, 4 : i64]]}
      stream(0) after([])
    emit.resolved "relu" id(1) name("backward") src(["backward"]) ins(%w : !emit.buffer<8xf32, bound>) outs(%y : !emit.buffer<8xf32, bound>) stream(1) after([])
  }
}

// -----

// Parts that are not those of the body.
// CHECK: error: emit.resolved: instruction 'step' (from w.new, b.new): @step.code is not the code of its body; run generate-kernels again
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
  emit.kernel @step.code parallel [12] reduce [] ins [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] outs [affine_map<(d0) -> (d0)>] attributes {emit.parts = [{program = 0 : i64, elements = 8 : i64, ins = [2 : i64, 1 : i64], outs = [0 : i64]}, {program = 0 : i64, elements = 4 : i64, ins = [3 : i64, 4 : i64], outs = [1 : i64]}]} {
  ^bb0(%lr: f32, %g: f32, %p: f32):
    emit.phase {
      %change = arith.mulf %lr, %g : f32
      %new = arith.subf %p, %change : f32
      emit.store %new, 0 : f32
      emit.yield
    }
  }
  emit.body @step.body {
  ^bb0(%lr: tensor<f32>, %gw: tensor<8xf32>, %w: tensor<8xf32>, %gb: tensor<4xf32>, %b: tensor<4xf32>):
    %rw = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<8xf32>
    %cw = logical.mul %rw, %gw : tensor<8xf32>
    %nw = logical.sub %w, %cw : tensor<8xf32>
    %rb = logical.broadcast %lr {dimensions = []} : tensor<f32> -> tensor<4xf32>
    %cb = logical.mul %rb, %gb : tensor<4xf32>
    %nb = logical.sub %b, %cb : tensor<4xf32>
    emit.yield %nw, %nb : tensor<8xf32>, tensor<4xf32>
  }
  emit.program @swapped_parts attributes {phase = "inplace"} {
    %lr = emit.bind meta "lr" : !emit.buffer<f32, bound>
    %w = emit.bind param "w" updated : !emit.buffer<8xf32, bound>
    %b = emit.bind param "b" updated : !emit.buffer<4xf32, bound>
    %gw = emit.bind input "gw" : !emit.buffer<8xf32, bound>
    %gb = emit.bind input "gb" : !emit.buffer<4xf32, bound>
    emit.resolved "sgd_step" id(7) name("step") src(["w.new", "b.new"])
      ins(%lr, %gw, %w, %gb, %b : !emit.buffer<f32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, bound>, !emit.buffer<4xf32, bound>) outs(%w, %b : !emit.buffer<8xf32, bound>, !emit.buffer<4xf32, bound>)
      attrs {learning_rate_operand = 0 : i64} schema("sgd_step.v1") blob("0x0000000000000000")
      body(@step.body) code(@step.code)
      kernel("cpu.multi_tensor", {version = 2 : i64, determinism = "bitwise", threads = 1 : i64, subnormals = "zero", parts = [{vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}, {vector_dim = 0 : i64, lanes = 8 : i64, unroll = 1 : i64, threads = 1 : i64, partition_dim = -1 : i64, combination_order = "none"}]})
      constraints {may_alias = [[0 : i64, 1 : i64], [0 : i64, 2 : i64], [1 : i64, 3 : i64], [1 : i64, 4 : i64]]}
      stream(0) after([])
  }
}
