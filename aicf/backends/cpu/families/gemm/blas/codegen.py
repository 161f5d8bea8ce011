"""Calls of the BLAS, through the function table."""

from __future__ import annotations

from llvmlite import ir

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import F32, F64, I32, I64, PTR, VOID, Emitter, Value
from aicf.backends.cpu.families.gemm.blas.kernel import library_function
from aicf.backends.cpu.families.gemm.codegen import read_products

_CBLAS_ROW_MAJOR = 101
_CBLAS_TRANSPOSE = {False: 111, True: 112}


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """A call of the library for each product of the batch."""
    work = read_products(launch)
    name = library_function(launch)
    at = em.b.gep(call.table, [em.index(call.functions.index(name))], source_etype=PTR)
    callee = em.b.load(at, typ=PTR)
    problem, output = work.problem, work.accesses[0][0]
    scalar = F32 if problem.dtype == "f32" else F64
    signature = ir.FunctionType(
        VOID, [I32, I32, I32, I64, I64, I64, scalar, PTR, I64, PTR, I64, scalar, PTR, I64]
    )
    one, zero = em.const(problem.dtype, 1, 1), em.const(problem.dtype, 1, 0)

    def product(depth: int, a: Value, b: Value, c: Value) -> None:
        if depth < len(problem.batch):
            steps = (problem.a_batch_strides[depth], problem.b_batch_strides[depth], output.strides[depth])

            @em.each(0, problem.batch[depth])
            def body(i: Value) -> None:
                moved = [
                    em.moved(p, i, step, problem.dtype) for p, step in zip((a, b, c), steps, strict=True)
                ]
                product(depth + 1, *moved)

            return
        flags = [ir.Constant(I32, _CBLAS_ROW_MAJOR)]
        leading: list[Value] = []
        a_matrix = (problem.a_strides, problem.m, problem.k)
        b_matrix = (problem.b_strides, problem.k, problem.n)
        for strides, rows, columns in (a_matrix, b_matrix):
            transposed = strides[1] != 1
            flags.append(ir.Constant(I32, _CBLAS_TRANSPOSE[transposed]))
            leading.append(
                em.index(max(strides[1] if transposed else strides[0], rows if transposed else columns))
            )
        sizes = [em.index(size) for size in (problem.m, problem.n, problem.k)]
        ldc = em.index(max(output.strides[-2], problem.n))
        em.b.call(
            em.typed_function(callee, signature),
            [*flags, *sizes, one, a, leading[0], b, leading[1], zero, c, ldc],
        )

    product(0, call.ins[0], call.ins[1], call.outs[0])
