// RUN: aicf-opt %s -p 'verify-emit' | filecheck %s

// A GEMM epilogue whose residual is overwritten, and a flattened result on the same bytes: permitted, and what the
// body says is what kind, attributes and code say.
// CHECK: emit.program @fine
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {threads = 1 : i64}>} {
emit.body @fc.body {
^bb0(%x : tensor<4x8xf32>, %w : tensor<8x8xf32>, %r : tensor<4x8xf32>):
  %m = logical.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = logical.add %m, %r : tensor<4x8xf32>
  emit.yield %s : tensor<4x8xf32>
}
emit.kernel @fc.code parallel [4, 8] reduce [] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%m : f32, %r : f32):
  emit.phase {
    %s = arith.addf %m, %r : f32
    emit.store %s, 0 : f32
    emit.yield
  }
}
emit.program @fine attributes {phase = "final", arena_bytes = 128 : i64, graphs = [["fc", "act"]]} {
  %x = emit.bind input "x" : !emit.buffer<4x8xf32, bound>
  %w = emit.bind param "w" : !emit.buffer<8x8xf32, bound>
  %s = emit.bind state "s" updated : !emit.buffer<4x8xf32, bound>
  %h = emit.slot offset(0) size(128) align(64) : !emit.buffer<4x8xf32, arena>
  %flat = emit.view %s offset(0) : !emit.buffer<4x8xf32, bound> to !emit.buffer<32xf32, bound>
  emit.resolved "gemm_epilogue" id(17) name("fc") src(["fc"])
    ins(%x, %w, %s : !emit.buffer<4x8xf32, bound>, !emit.buffer<8x8xf32, bound>, !emit.buffer<4x8xf32, bound>) outs(%s : !emit.buffer<4x8xf32, bound>)
    attrs {transpose_a = false, transpose_b = false, bias = false, residual = true, activation = "none"} schema("gemm_epilogue.v1") blob("0x0000000100")
    body(@fc.body) code(@fc.code)
    kernel("cpu.gemm_avx2", {version = 4 : i64, determinism = "bitwise", lanes = 8 : i64, tile_rows = 4 : i64, tile_vectors = 1 : i64, k_split = 1 : i64, k_unroll = 4 : i64, b_source = "direct", panel_group = 1 : i64, block_rows = 0 : i64, partition = "none", threads = 1 : i64, prefetch_lines = 0 : i64, prefetch_ahead = 0 : i64, epilogue_from = "registers", combination_order = "ascending k", transpose_a = false, transpose_b = false, batch_in_rows = 0 : i64, workspace_bytes = 0 : i64})
    constraints {may_alias = [[0 : i64, 2 : i64]]} stream(0) after([])
  emit.resolved "relu" id(1) name("act") src(["act"]) ins(%flat : !emit.buffer<32xf32, bound>) outs(%s : !emit.buffer<4x8xf32, bound>)
    kernel("cpu.generated", {version = 1 : i64, determinism = "bitwise"}) constraints {may_alias = [[0 : i64, 0 : i64]]} stream(0) after(["fc" full])
}
}
