"""Code that combines updates into rows at computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.scatter import Scatter
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import extended
from aicf.backends.cpu.families.loops.schedule import LoopSpec
from aicf.backends.cpu.families.loops.template import LoopPointers, emit_loops


def named_row(em: Emitter, indices: Strided, pointer: Value, number: Value, rows: int) -> tuple[Value, Value]:
    """The row that index `number` names (i64), counted from the end if it is negative, and whether there is one."""
    address = em.moved(pointer, number, indices.strides[0], indices.dtype)
    index = extended(em, em.load(address, indices.dtype, 1), indices.dtype)
    negative = em.b.icmp_signed("<", index, em.index(0))
    row = em.b.select(negative, em.b.add(index, em.index(rows)), index)
    return row, em.b.icmp_unsigned("<", row, em.index(rows))


def emit_scatter(
    em: Emitter, scatter: Scatter, specs: tuple[LoopSpec, LoopSpec], ins: Sequence[Value], target: Value
) -> None:
    """The operand copied, then each update in order combined into its row; `specs` are those of copy and row."""
    operand, indices, updates = ins
    zero, one = em.index(0), em.index(1)
    emit_loops(em, scatter.copy(), specs[0], LoopPointers((operand, target), zero, one))
    row_nest, result = scatter.row(), scatter.result

    def combine(number: Value, row: Value) -> None:
        into = em.moved(target, row, result.strides[0], result.dtype)
        update = em.moved(updates, number, scatter.updates.strides[0], scatter.updates.dtype)
        emit_loops(em, row_nest, specs[1], LoopPointers((into, update, into), zero, one))

    @em.each(0, scatter.indices.shape[0])
    def step(number: Value) -> None:
        row, inside = named_row(em, scatter.indices, indices, number, result.shape[0])
        em.when(inside, partial(combine, number, row))
