// RUN: not aicf-opt %S/Inputs/unknown_kind.mlir 2>&1 | filecheck %s --check-prefix=KIND
// RUN: not aicf-opt %S/Inputs/wrong_schema.mlir 2>&1 | filecheck %s --check-prefix=SCHEMA
// RUN: not aicf-opt %S/Inputs/other_shapes.mlir -p verify-emit 2>&1 | filecheck %s --check-prefix=SHAPES
// RUN: not aicf-opt %S/Inputs/other_shapes.mlir -p 'set-target{target="cpu:x86-64-v2"},select-kernels' 2>&1 | filecheck %s --check-prefix=SHAPES
// RUN: not aicf-opt %S/Inputs/other_backend.mlir -p 'set-target{target="cpu:x86-64-v2"},verify-emit' 2>&1 | filecheck %s --check-prefix=BACKEND
// RUN: not aicf-opt %S/Inputs/open_epilogue.mlir -p 'set-target{target="cpu:x86-64-v2"},select-kernels' 2>&1 | filecheck %s --check-prefix=EPILOGUE
// RUN: not aicf-opt %S/Inputs/many_products.mlir -p 'set-target{target="cuda:sm_90a"},select-kernels' 2>&1 | filecheck %s --check-prefix=GRID
// RUN: not aicf-opt %S/Inputs/many_products.mlir -p select-kernels 2>&1 | filecheck %s --check-prefix=TARGET

// Instructions that no pass can complete, each with the way out.

// KIND: unknown_kind.mlir:{{.*}}instruction 'act': unknown kind 'swish'; kinds are words such as gemm or softmax
// SCHEMA: wrong_schema.mlir:{{.*}}instruction 'act': kind 'relu' has schema "", not "gemm.v1"
// SHAPES: other_shapes.mlir:{{.*}}instruction 'act' (from act): its body is for other shapes or types than its buffers
// BACKEND: other_backend.mlir:{{.*}}instruction 'act' (from act): backend cpu has no kernel 'reference.body'; it has cpu.gemm_blas
// EPILOGUE: open_epilogue.mlir:{{.*}}instruction 'fc' has no body: a residual and activation 'relu' do not say which comes first; give body(@symbol)
// GRID: no kernel of target cuda runs instruction 'fc' of kind gemm: {{.*}}cuda.gemm_simt: 70000 matrices are more than a grid has room for
// TARGET: the module has no target; run set-target
