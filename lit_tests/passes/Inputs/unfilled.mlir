builtin.module {
  emit.program @hand attributes {phase = "bufferized"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x6xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x6xf32, bound>
    emit.resolved "relu" id(1) name("act") src(["act"]) ins(%x : !emit.buffer<4x6xf32, bound>) outs(%y : !emit.buffer<4x6xf32, bound>)
  }
}
