builtin.module {
  emit.program @hand attributes {phase = "bufferized"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x6xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x6xf32, bound>
    %w = emit.bind param "w" : !emit.buffer<6x6xf32, bound>
    emit.resolved "gemm_epilogue" id(17) name("fc") src(["fc"])
      ins(%x, %w, %x : !emit.buffer<4x6xf32, bound>, !emit.buffer<6x6xf32, bound>, !emit.buffer<4x6xf32, bound>)
      outs(%y : !emit.buffer<4x6xf32, bound>)
      attrs {transpose_a = false, transpose_b = true, bias = false, residual = true, activation = "relu"}
      schema("gemm_epilogue.v1") blob("0x0001000101")
  }
}
