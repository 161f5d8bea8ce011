// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v2"},select-kernels,generate-kernels' | filecheck %s
// RUN: aicf-opt %s -p 'set-target{target="cpu:x86-64-v2"},select-kernels,generate-kernels,verify-emit,schedule,verify-order,decide-inplace,plan-memory,plan-capture,verify-emit,verify-order,verify-capture-safe' | filecheck %s --check-prefix=FINAL
// RUN: aicf-opt %s -p 'set-target{target="reference:typed"},select-kernels' | filecheck %s --check-prefix=REFERENCE

// Instructions that state a kind and attributes only: select-kernels gives them the body of their kind and a kernel, and
// generate-kernels the code of that kernel.
builtin.module {
  // CHECK:      emit.decision "select-kernels" ["fc"] choice "body @fc.body" because "the kind table's body of gemm_epilogue"
  // CHECK-NEXT: emit.decision "select-kernels" ["fc"] choice "cpu.gemm_portable"
  // CHECK-SAME:   rejected {cpu.gemm_avx512 = "needs cpu level x86-64-v4
  // CHECK-NEXT: emit.decision "select-kernels" ["w:packed_b", "fc"] choice "prepare 'w' as packed_b"
  // CHECK:      emit.decision "select-kernels" ["halved"] choice "cpu.generated"
  // CHECK:      emit.decision "generate-kernels" ["fc"] choice "fc.code" because "1 phase over 4 x 6"

  // CHECK-LABEL: emit.body @fc.body {
  // CHECK-NEXT:  ^bb0(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>, %b: tensor<6xf32>):
  // CHECK-NEXT:    %fc.matmul = logical.matmul %x, %w {transpose_b, aicf.id = "fc.matmul", aicf.src = ["dense", "act"]}
  // CHECK-NEXT:    %fc.bias.broadcast = logical.broadcast %b {dimensions = [1]
  // CHECK-NEXT:    %fc.bias = logical.add %fc.matmul, %fc.bias.broadcast
  // CHECK-NEXT:    %fc.activation = logical.relu %fc.bias
  // CHECK-NEXT:    emit.yield %fc.activation : tensor<4x6xf32>

  // A bare parameter is packed ahead.
  // CHECK-LABEL: emit.program @prepare
  // CHECK:         emit.resolved "pack" id(26) name("w:packed_b") src(["dense", "act"])

  // CHECK-LABEL: emit.kernel @fc.code parallel [4, 6] reduce []
  // CHECK:           arith.maximumf

  // CHECK-LABEL: emit.program @hand
  // FINAL-LABEL: emit.program @hand attributes {phase = "final", arena_bytes = 128 : i64, graphs = {{\[\[}}"fc", "halved", "total"]]}
  // REFERENCE-LABEL: emit.program @hand
  emit.program @hand attributes {phase = "bufferized"} {
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x8xf32, bound>
    // The program itself no longer reads w.
    // CHECK-NOT: emit.bind param "w"
    %w = emit.bind param "w" : !emit.buffer<6x8xf32, bound>
    %b = emit.bind param "b" : !emit.buffer<6xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x6xf32, bound>
    %s = emit.bind output "s" binding(direct) : !emit.buffer<4x1xf32, bound>
    // CHECK:     emit.bind derived "w:packed_b"
    %h = emit.slot : !emit.buffer<4x6xf32, arena>

    // CHECK:     emit.resolved "gemm_epilogue" id(17) name("fc") src(["dense", "act"])
    // CHECK-NEXT:  ins(%x, %{{[0-9]+}}, %b : !emit.buffer<4x8xf32, bound>, !emit.buffer<6x8xf32, const, layout #emit.layout<"packed_b"
    // CHECK-NEXT:  attrs {{.*}} schema("gemm_epilogue.v1") blob("0x0001010001")
    // CHECK-NEXT:  body(@fc.body) code(@fc.code)
    // CHECK-NEXT:  kernel("cpu.gemm_portable", {version = {{[0-9]+}} : i64, determinism = "bitwise"
    // CHECK-NEXT:  expected_us(
    // CHECK-NEXT:  constraints {may_alias = []}
    // REFERENCE:   body(@fc.body)
    // REFERENCE-NEXT: kernel("reference.body", {version = 1 : i64, determinism = "bitwise"})
    emit.resolved "gemm_epilogue" id(17) name("fc") src(["dense", "act"])
      ins(%x, %w, %b : !emit.buffer<4x8xf32, bound>, !emit.buffer<6x8xf32, bound>, !emit.buffer<6xf32, bound>)
      outs(%h : !emit.buffer<4x6xf32, arena>)
      attrs {transpose_a = false, transpose_b = true, bias = true, residual = false, activation = "relu"}
      schema("gemm_epilogue.v1") blob("0x0001010001")

    // One with a body and hints of its own keeps them; its time is that of the kernel that is chosen.
    // CHECK:     emit.resolved "generated" id(24) name("halved")
    // CHECK:       body(@own.body) code(@halved.code)
    // CHECK-NEXT:  kernel("cpu.generated"
    // CHECK-NEXT:  expected_us(
    // CHECK-NEXT:  constraints {may_alias = {{\[\[}}0 : i64, 0 : i64]]} hints {note = "mine"}
    emit.resolved "generated" id(24) name("halved") src(["halved"])
      ins(%h : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>)
      body(@own.body) hints {note = "mine"}

    // CHECK:     emit.resolved "reduce_sum" id(4) name("total")
    // CHECK:       body(@total.body) code(@total.code)
    emit.resolved "reduce_sum" id(4) name("total") src(["total"])
      ins(%y : !emit.buffer<4x6xf32, bound>) outs(%s : !emit.buffer<4x1xf32, bound>)
      attrs {first_axis = 1 : i64, axis_count = 1 : i64, keepdims = true}
      schema("reduce_sum.v1") blob("0x0100000000000000010000000000000001")
  }
  emit.body @own.body {
  ^bb0(%a: tensor<4x6xf32>):
    %half = logical.constant dense<5.000000e-01> : tensor<4x6xf32>
    %r = logical.mul %a, %half : tensor<4x6xf32>
    emit.yield %r : tensor<4x6xf32>
  }
}
