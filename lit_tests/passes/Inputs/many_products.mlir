builtin.module {
  emit.program @hand attributes {phase = "bufferized"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<70000x4x4xi16, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<70000x4x4xi16, bound>
    emit.resolved "gemm" id(2) name("fc") src(["fc"]) ins(%x, %x : !emit.buffer<70000x4x4xi16, bound>, !emit.buffer<70000x4x4xi16, bound>) outs(%y : !emit.buffer<70000x4x4xi16, bound>)
        attrs {transpose_a = false, transpose_b = false} schema("gemm.v1") blob("0x0000")
  }
}
