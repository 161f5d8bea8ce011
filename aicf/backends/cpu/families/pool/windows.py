"""What both ways to pool share: elements that change nothing, and how many elements the windows find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.common.pool import PoolAxis
from aicf.backends.cpu.codegen.ir_builder import I8, Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars
from aicf.backends.cpu.families.pool.schedule import PoolSpec
from aicf.backends.cpu.target import ELEMENT_BYTES, REGISTERS
from aicf.dialects.window_counts import elements_found, found_by_all


@dataclass(frozen=True)
class PoolPointers:
    """Run-time operands of the emitted code."""

    x: Value
    y: Value
    tid: Value
    nthreads: Value


@dataclass(frozen=True)
class Counts:
    """What the windows along one dimension find: a number, or a table of one for each."""

    number: int | None
    table: Value | None


class PoolCode:
    """A pooling with its run-time operands."""

    def __init__(self, em: Emitter, spec: PoolSpec, pointers: PoolPointers) -> None:
        self.em = em
        self.spec = spec
        self.p = spec.problem
        self.dtype = spec.problem.dtype
        self.held = REGISTERS[self.dtype]
        """The type of combined rows: sums of f16 and bf16 are f32."""
        self.pointers = pointers
        self.scalars = Scalars(em, spec.lanes)
        self.counts = [self.found(axis) for axis in self.p.axes] if self.p.mode == "avg" else []

    def nothing_of(self, count: int, dtype: str) -> Value:
        """Elements on the stack that change nothing."""
        em, lanes = self.em, self.spec.lanes
        row = em.stack(I8, count * ELEMENT_BYTES[dtype])
        nothing = self.scalars.identity(self.p.how, dtype)

        @em.each(0, count, lanes)
        def body(at: Value) -> None:
            em.store(nothing, em.address(row, at, dtype), dtype, lanes)

        return row

    def found(self, axis: PoolAxis) -> Counts:
        em, number = self.em, found_by_all(axis, padding=self.p.padding_counts)
        if number is not None:
            return Counts(number, None)
        found = elements_found(axis, padding=self.p.padding_counts).tolist()
        size = -(-axis.count // self.spec.lanes) * self.spec.lanes
        table = em.stack(I8, size * ELEMENT_BYTES[self.held])
        for coordinate in range(size):
            number = found[coordinate] if coordinate < axis.count else 1
            em.store(em.const(self.held, 1, number), em.address(table, coordinate, self.held), self.held, 1)
        return Counts(None, table)

    def count_at(self, counts: Sequence[Counts], coordinates: Sequence[Value]) -> Value:
        """How many elements the windows at `coordinates` find along dimensions with such counts, in every lane."""
        em, number, total = self.em, 1, None
        for own_counts, coordinate in zip(counts, coordinates, strict=True):
            if own_counts.number is not None:
                number *= own_counts.number
                continue
            assert own_counts.table is not None
            own = em.load(em.address(own_counts.table, coordinate, self.held), self.held, 1)
            total = own if total is None else em.b.fmul(total, own)
        if total is None:
            return em.const(self.held, self.spec.lanes, number)
        return em.splat(em.b.fmul(total, em.const(self.held, 1, number)), self.spec.lanes)
