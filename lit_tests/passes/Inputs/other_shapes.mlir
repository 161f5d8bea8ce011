builtin.module {
  emit.program @hand attributes {phase = "bufferized"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x6xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x6xf32, bound>
    emit.resolved "relu" id(1) name("act") src(["act"]) ins(%x : !emit.buffer<4x6xf32, bound>) outs(%y : !emit.buffer<4x6xf32, bound>) body(@act.body)
  }
  emit.body @act.body {
  ^bb0(%a: tensor<6x4xf32>):
    %r = logical.relu %a : tensor<6x4xf32>
    emit.yield %r : tensor<6x4xf32>
  }
}
