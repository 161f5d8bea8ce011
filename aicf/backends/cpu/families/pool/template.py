"""Code for poolings of planes: the rows of a window are combined into one row with a border, then the columns of that.

Rows beyond the operand are replaced by a row of what changes nothing, so that no vector asks where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.families.pool.channels import PoolChannels
from aicf.backends.cpu.families.pool.schedule import ROWS_AT_ONCE, PoolSpec
from aicf.backends.cpu.families.pool.windows import PoolCode, PoolPointers

_COLUMNS_UNROLLED = 16
"""Most columns of a window that are written out one after the other."""


def emit_pool(em: Emitter, spec: PoolSpec, pointers: PoolPointers) -> None:
    """Emit a pooling at the current position of `em`."""
    algorithm = PoolChannels if spec.lanes_along == "channels" else _PoolRows
    algorithm(em, spec, pointers).run()


class _PoolRows(PoolCode):
    """Planes, rows of results, rows of windows, columns."""

    def __init__(self, em: Emitter, spec: PoolSpec, pointers: PoolPointers) -> None:
        super().__init__(em, spec, pointers)
        self.last = self.p.axes[-1]
        self.block = self.nothing_of(spec.block_rows * spec.pitch, self.held)
        self.nothing = self.nothing_of(-(-self.last.whole // spec.lanes) * spec.lanes, self.dtype)

    def run(self) -> None:
        em, p = self.em, self.p
        planes, threads = p.batch * p.channels, (self.pointers.tid, self.pointers.nthreads)
        bounds = (0, planes) if self.spec.threads == 1 else share_of(em, planes, *threads)

        @em.each(*bounds)
        def plane(number: Value) -> None:
            channels = em.index(p.channels)
            n, c = em.b.sdiv(number, channels), em.b.srem(number, channels)
            x, y = (
                em.moved(em.moved(base, n, strides[0], self.dtype), c, strides[1], self.dtype)
                for base, strides in ((self.pointers.x, p.x_strides), (self.pointers.y, p.y_strides))
            )
            self.outer(0, [], x, y)

    # Rows

    def outer(self, dim: int, coordinates: list[Value], x: Value, y: Value) -> None:
        """Loops over all dimensions of the result but the last; `coordinates` are those of the loops outside."""
        if dim == len(self.p.axes) - 1:
            self.line(coordinates, x, y)
            return
        if dim == len(self.p.axes) - 2 and self.spec.block_rows > 1:
            self.blocks(coordinates, x, y)
            return

        @self.em.each(0, self.p.axes[dim].count)
        def body(coordinate: Value) -> None:
            self.outer(
                dim + 1,
                [*coordinates, coordinate],
                x,
                self.em.moved(y, coordinate, self.p.y_strides[2 + dim], self.dtype),
            )

    def blocks(self, coordinates: list[Value], x: Value, y: Value) -> None:
        """All rows of results of a plane, block by block."""
        em = self.em

        @em.pieces(self.p.axes[-2].count, self.spec.block_rows)
        def block(first: Value, count: int) -> None:
            @em.each(0, count)
            def combine(number: Value) -> None:
                at = em.b.add(first, number)
                self.rows_into(
                    em.moved(self.block, number, self.spec.pitch, self.held), [*coordinates, at], x
                )

            @em.each(0, count)
            def columns(number: Value) -> None:
                at = em.b.add(first, number)
                row = em.moved(self.block, number, self.spec.pitch, self.held)
                self.columns(
                    row, self.held, [*coordinates, at], em.moved(y, at, self.p.y_strides[-2], self.dtype)
                )

    def line(self, coordinates: Sequence[Value], x: Value, y: Value) -> None:
        """One row of results."""
        if self.spec.in_place:
            self.columns(self.rows(coordinates, x)[0], self.dtype, coordinates, y)
            return
        self.rows_into(self.block, coordinates, x)
        self.columns(self.block, self.held, coordinates, y)

    def rows_into(self, target: Value, coordinates: Sequence[Value], x: Value) -> None:
        """The rows of a window combined into one with a border."""
        rows = self.rows(coordinates, x)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            self.combine(target, rows[first : first + ROWS_AT_ONCE], first == 0)

    def rows(self, coordinates: Sequence[Value], x: Value) -> list[Value]:
        """Where the rows of a window start; one of nothing for those beyond the operand."""
        em, outer = self.em, self.p.axes[:-1]
        found: list[Value] = []
        for taps in product(*(range(axis.size) for axis in outer)):
            row, inside = x, None
            for dim, (axis, coordinate, tap) in enumerate(zip(outer, coordinates, taps, strict=True)):
                offset = tap * axis.dilation - axis.low
                at = em.b.add(em.scaled(coordinate, axis.stride), em.index(offset))
                row = em.moved(row, at, self.p.x_strides[2 + dim], self.dtype)
                if not axis.is_inside:
                    below = em.b.icmp_unsigned("<", at, em.index(axis.whole))  # negative numbers are large
                    inside = below if inside is None else em.b.and_(inside, below)
            found.append(row if inside is None else em.b.select(inside, row, self.nothing))
        return found

    def combine(self, target: Value, rows: Sequence[Value], is_first: bool) -> None:
        """Combines rows into the target row, after its border; with what it holds already unless `is_first`."""
        em, lanes = self.em, self.spec.lanes
        target = em.address(target, self.last.low, self.held)

        @em.pieces(self.last.whole, lanes)
        def vector(at: Value, active: int) -> None:
            address = em.address(target, at, self.held)
            before = [] if is_first else [em.load(address, self.held, lanes, active)]
            added = [em.load(em.address(row, at, self.dtype), self.dtype, lanes, active) for row in rows]
            em.store(self.all_of([*before, *added]), address, self.held, lanes, active)

    def all_of(self, values: Sequence[Value]) -> Value:
        total, *rest = values
        for value in rest:
            total = self.scalars.combine(self.p.how, self.held, total, value)
        return total

    # Columns

    def columns(self, row: Value, dtype: str, coordinates: Sequence[Value], y: Value) -> None:
        """The results of a row of some type whose first element is the first that a window finds."""
        em, axis, lanes = self.em, self.last, self.spec.lanes
        found = self.count_at(self.counts[:-1], coordinates) if self.counts else None

        @em.pieces(axis.count, lanes)
        def vector(at: Value, active: int) -> None:
            start = em.moved(row, at, axis.stride, dtype)

            def tap(number: Value) -> Value:
                address = em.moved(start, number, axis.dilation, dtype)
                return em.load_strided(address, axis.stride, dtype, lanes, active)

            value = self.over_columns(tap)
            if found is not None:
                value = em.b.fdiv(value, self.divisor(found, at))
            em.store(value, em.address(y, at, self.dtype), self.dtype, lanes, active)

    def over_columns(self, tap: Callable[[Value], Value]) -> Value:
        em, size = self.em, self.last.size
        if size <= _COLUMNS_UNROLLED:
            return self.all_of([tap(em.index(number)) for number in range(size)])

        def body(number: Value, acc: list[Value]) -> list[Value]:
            return [self.scalars.combine(self.p.how, self.held, acc[0], tap(number))]

        start = self.scalars.identity(self.p.how, self.held)
        return em.loop(0, size, 1, [start], body)[0]

    def divisor(self, rows: Value, at: Value) -> Value:
        """How many elements each of a vector of windows finds."""
        em, lanes, counts = self.em, self.spec.lanes, self.counts[-1]
        if counts.table is None:
            assert counts.number is not None
            return em.b.fmul(rows, em.const(self.held, lanes, counts.number))
        return em.b.fmul(rows, em.load(em.address(counts.table, at, self.held), self.held, lanes))
