"""Code that makes rows of a GEMM's left operand on the way in: a row program (a norm) over a block of rows."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.common.loop_nest import Row
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.gemm.operands import RowProgram
from aicf.backends.cpu.families.loops.schedule import LoopSpec
from aicf.backends.cpu.families.loops.template import LoopPointers, emit_loops


def make_rows(row: Row, spec: LoopSpec, operands: Sequence[Value]) -> RowProgram:
    """The row program of `row`, whose inputs lie at `operands`; its one output is the left operand."""

    def emit(em: Emitter, block: Value, first: Value, end: Value, target: Value) -> None:
        *inputs, output = row.strides
        accesses = row.nest.accesses

        @em.each(first, end)
        def body(i: Value) -> None:
            at = em.b.add(block, i)
            given = zip(operands, inputs, accesses, strict=False)
            read = [em.moved(pointer, at, step, access.dtype) for pointer, step, access in given]
            made = em.moved(target, i, output, accesses[-1].dtype)
            nothing = em.index(0)
            emit_loops(em, row.nest, spec, LoopPointers((*read, made), nothing, nothing))

    return emit
