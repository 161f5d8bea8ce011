builtin.module {
  emit.program @hand attributes {phase = "bufferized"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x6xi16, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x6xi16, bound>
    emit.resolved "relu" id(1) name("act") src(["act"]) ins(%x : !emit.buffer<4x6xi16, bound>) outs(%y : !emit.buffer<4x6xi16, bound>)
  }
}
