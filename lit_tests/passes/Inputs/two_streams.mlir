builtin.module {
  emit.program @two attributes {phase = "scheduled"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x8xf32, bound>
    %b = emit.bind param "b" : !emit.buffer<8xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x8xf32, bound>
    %rows = emit.view %b offset(0) : !emit.buffer<8xf32, bound> to !emit.buffer<4x8xf32, bound, strides [0, 1]>
    %h = emit.slot : !emit.buffer<4x8xf32, arena>
    %p = emit.slot : !emit.buffer<4x4xf32, arena>
    %s = emit.slot : !emit.buffer<4x8xf32, arena>
    %last = emit.view %h offset(24) : !emit.buffer<4x8xf32, arena> to !emit.buffer<8xf32, arena>
    emit.resolved "add" id(0) name("sum") src(["sum"])
      ins(%x, %rows : !emit.buffer<4x8xf32, bound>, !emit.buffer<4x8xf32, bound, strides [0, 1]>)
      outs(%h : !emit.buffer<4x8xf32, arena>) body(@sum.body) stream(0) after([])
    emit.resolved "gemm" id(2) name("product") src(["product"])
      ins(%x, %x : !emit.buffer<4x8xf32, bound>, !emit.buffer<4x8xf32, bound>)
      outs(%p : !emit.buffer<4x4xf32, arena>)
      attrs {transpose_a = false, transpose_b = true} schema("gemm.v1") blob("0x0001")
      body(@product.body) stream(1) after([])
    emit.resolved "relu" id(1) name("act") src(["act"])
      ins(%h : !emit.buffer<4x8xf32, arena>) outs(%h : !emit.buffer<4x8xf32, arena>)
      body(@act.body) stream(0) after(["sum" full])
    emit.resolved "generated" id(24) name("row") src(["row"])
      ins(%last, %h : !emit.buffer<8xf32, arena>, !emit.buffer<4x8xf32, arena>)
      outs(%s : !emit.buffer<4x8xf32, arena>) body(@row.body) stream(0) after(["act" full])
    emit.resolved "generated" id(24) name("join") src(["join"])
      ins(%s, %p : !emit.buffer<4x8xf32, arena>, !emit.buffer<4x4xf32, arena>)
      outs(%y : !emit.buffer<4x8xf32, bound>) body(@join.body) stream(0) after(["row" full, "product" full])
  }
  emit.body @sum.body {
  ^bb0(%a: tensor<4x8xf32>, %c: tensor<4x8xf32>):
    %r = logical.add %a, %c : tensor<4x8xf32>
    emit.yield %r : tensor<4x8xf32>
  }
  emit.body @product.body {
  ^bb0(%a: tensor<4x8xf32>, %c: tensor<4x8xf32>):
    %r = logical.matmul %a, %c {transpose_b} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
    emit.yield %r : tensor<4x4xf32>
  }
  emit.body @act.body {
  ^bb0(%a: tensor<4x8xf32>):
    %r = logical.relu %a : tensor<4x8xf32>
    emit.yield %r : tensor<4x8xf32>
  }
  emit.body @row.body {
  ^bb0(%a: tensor<8xf32>, %c: tensor<4x8xf32>):
    %w = logical.broadcast %a {dimensions = [1]} : tensor<8xf32> -> tensor<4x8xf32>
    %r = logical.mul %c, %w : tensor<4x8xf32>
    emit.yield %r : tensor<4x8xf32>
  }
  emit.body @join.body {
  ^bb0(%a: tensor<4x8xf32>, %c: tensor<4x4xf32>):
    %t = logical.reduce_sum %c {axes = [1], keepdims} : tensor<4x4xf32> -> tensor<4x1xf32>
    %w = logical.broadcast %t {dimensions = [0, 1]} : tensor<4x1xf32> -> tensor<4x8xf32>
    %r = logical.add %a, %w : tensor<4x8xf32>
    emit.yield %r : tensor<4x8xf32>
  }
}
