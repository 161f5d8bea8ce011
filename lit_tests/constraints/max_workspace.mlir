// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_80"},select-kernels,generate-kernels,verify-emit' | filecheck %s
// RUN: sed 's/max_workspace = 4096/max_workspace = 16/' %s > %t.mlir
// RUN: not aicf-opt %t.mlir -p 'set-target{target="cuda:sm_80"},select-kernels' 2>&1 | filecheck %s --check-prefix=LESS
// RUN: aicf-opt %s -p 'set-target{target="cuda:sm_80"},select-kernels,generate-kernels' > %t.once
// RUN: sed 's/max_workspace = 4096/max_workspace = 16/' %t.once > %t.edited
// RUN: not aicf-opt %t.edited -p 'verify-emit' 2>&1 | filecheck %s --check-prefix=EDITED
// RUN: sed 's/max_workspace = 4096/max_workspace = true/' %s > %t.typed
// RUN: not aicf-opt %t.typed 2>&1 | filecheck %s --check-prefix=TYPED

// `max_workspace`: bytes that the kernel of an instruction may take. Long rows are summed in parts, which lie there.
// CHECK: workspace_bytes
// CHECK: constraints {{.*}}max_workspace = 4096 : i64}
// LESS: no kernel of target cuda runs instruction 'sum' of kind reduce_sum: cuda.generated: it needs {{[0-9]+}} bytes of workspace, max_workspace allows 16; write it as other instructions, or choose another target
// EDITED: instruction 'sum' (from sum): its kernel and ws take {{[0-9]+}} bytes of workspace, max_workspace allows 16; leave kernel(...) and ws out for select-kernels, or allow more
// TYPED: instruction 'sum': max_workspace is bytes as an i64, 0 or more, got true
emit.program @main attributes {phase = "bufferized"} {
  %x = emit.bind input "x" binding(direct) align(16) : !emit.buffer<2x65536xf32, bound>
  %y = emit.bind output "y" binding(direct) align(16) : !emit.buffer<2xf32, bound>
  emit.resolved "reduce_sum" id(4) name("sum") src(["sum"]) ins(%x : !emit.buffer<2x65536xf32, bound>) outs(%y : !emit.buffer<2xf32, bound>) constraints {max_workspace = 4096}
    attrs {first_axis = 1 : i64, axis_count = 1 : i64, keepdims = false} schema("reduce_sum.v1") blob("0x0100000000000000010000000000000000")
}
