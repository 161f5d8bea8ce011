"""Code that finds the last update of each row."""

from __future__ import annotations

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.ir_builder import I32, Emitter, Value
from aicf.backends.cpu.families.scatter.template import named_row


def emit_last_update(em: Emitter, indices: Strided, result: Strided, source: Value, target: Value) -> None:
    """The number of the last index of each row, -1 where there is none."""
    rows, step = result.shape[0], result.strides[0]
    none = em.const("i32", 1, -1)

    @em.each(0, rows)
    def clear(row: Value) -> None:
        em.store(none, em.moved(target, row, step, "i32"), "i32", 1)

    @em.each(0, indices.shape[0])
    def note(number: Value) -> None:
        row, inside = named_row(em, indices, source, number, rows)
        here = em.b.trunc(number, I32)
        em.when(inside, lambda: em.store(here, em.moved(target, row, step, "i32"), "i32", 1))
