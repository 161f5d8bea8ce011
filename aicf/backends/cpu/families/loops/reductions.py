"""Passes over the reduce space of a generated kernel: reductions and scans, what they store and keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from xdsl.ir import SSAValue

from aicf.backends.common.loop_nest import origin, reached, reads
from aicf.backends.cpu.codegen.ir_builder import Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, dtype_of
from aicf.backends.cpu.families.loops.memory import Cursor, LoopMemory, register_of
from aicf.backends.cpu.families.loops.scans import scan_step
from aicf.backends.cpu.families.loops.values import Cell, Point
from aicf.dialects.emit_kernels import ReduceOp, ScanOp, StoreOp

_Item = TypeVar("_Item")

_Step = Callable[[Value, list[Value]], list[Value]]
"""Emits one step of a loop, by its number and what is carried."""


class Sweep:
    """One pass over the reduce space: accumulates reductions and scans, stores, and keeps values for later phases."""

    def __init__(
        self,
        memory: LoopMemory,
        points: list[Point],
        reduces: list[ReduceOp],
        scans: list[ScanOp],
        stores: list[StoreOp],
        kept: Sequence[SSAValue],
    ) -> None:
        self.memory = memory
        self.em = memory.em
        self.points = points
        self.reduces = reduces
        self.scans = scans
        self.backward = any(op.is_reverse for op in scans)
        self.stores = stores
        self.kept = kept
        self.scalars = memory.scalars
        self.groups = memory.spec.unroll if memory.inner else len(points)

    def run(self) -> None:
        self._hoist()
        start = self._nothing() + [
            self.scalars.identity(op.combine.data, dtype_of(op.value))
            for op in self.scans
            for _ in range(self.carries)
        ]
        results = self._nest(self.memory.reduce, self.points[0].cursor, self.em.index(0), start)
        for number, op in enumerate(self.reduces):
            partial = results[number * self.groups : (number + 1) * self.groups]
            if self.memory.inner:
                partial = [combined(self.scalars, op.combine.data, dtype_of(op.value), partial)]
            for point, value in zip(self.points, partial, strict=True):
                point.values[op.result] = point.scalars.settled(value, dtype_of(op.value))

    def _nothing(self) -> list[Value]:
        """What all partial results start from."""
        return [
            self.scalars.identity(op.combine.data, dtype_of(op.value))
            for op in self.reduces
            for _ in range(self.groups)
        ]

    @property
    def carries(self) -> int:
        """What a scan carries along: one value for each point, be they side by side or one."""
        return 1 if self.memory.inner else self.groups

    def _in_order(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Steps along the reduce dim in the order in which the scans walk."""
        return items[::-1] if self.backward else items

    def _walk(self, count: int, terms: int, carried: list[Value], body: _Step) -> list[Value]:
        """A loop over `count` steps of the reduce dim, in the order in which the scans walk, each of `terms` terms of a
        sum; in blocks where those are many."""
        em = self.em
        sizes = self.memory.spec.blocks(count, terms) if self.reduces else ()

        def step(number: Value, acc: list[Value]) -> list[Value]:
            return body(em.b.sub(em.index(count - 1), number) if self.backward else number, acc)

        return self._blocks(None, count, sizes, carried, step)

    def _blocks(
        self, first: Value | None, count: Value | int, sizes: Sequence[int], carried: list[Value], step: _Step
    ) -> list[Value]:
        """`count` steps from number `first` on; `sizes` are those of the blocks, the innermost first."""
        em = self.em

        def number(i: Value) -> Value:
            return i if first is None else em.b.add(first, i)

        if not sizes:
            return em.loop(0, count, 1, carried, lambda i, acc: step(number(i), acc))
        *inner, size = sizes

        def block(i: Value, acc: list[Value]) -> list[Value]:
            scanned = acc[len(self.reduces) * self.groups :]
            steps = self._steps_of_block(i, count, size)
            found = self._blocks(number(i), steps, inner, self._nothing() + scanned, step)
            return self._joined(acc, found)

        return em.loop(0, count, size, carried, block)

    def _steps_of_block(self, start: Value, count: Value | int, size: int) -> Value | int:
        """How many of `count` steps the block of `size` has that begins at `start`; the last may be short."""
        if isinstance(count, int) and count % size == 0:
            return size
        b, whole = self.em.b, self.em.index(size)
        left = b.sub(self.em.index(count) if isinstance(count, int) else count, start)
        return b.select(b.icmp_signed("<", left, whole), left, whole)

    def _joined(self, acc: list[Value], found: list[Value]) -> list[Value]:
        """Partial results with those of one more block; what scans carry is that of the block."""
        joined = list(found)
        for number, op in enumerate(self.reduces):
            how, dtype = op.combine.data, dtype_of(op.value)
            for at in range(number * self.groups, (number + 1) * self.groups):
                joined[at] = self.scalars.combine(how, dtype, acc[at], found[at])
        return joined

    def _terms(self, dims: list[int]) -> int:
        """Terms that one pass over the loops of `dims`, and what is inside them, adds to each partial result."""
        if not dims:
            return self._terms_of_vectors() if self.memory.inner else 1
        return self._left(self.memory.nest.dims[dims[0]].size, self._terms(dims[1:]))

    def _terms_of_vectors(self) -> int:
        """The same for the vectorised dim: its blocks, and a vector past them."""
        memory = self.memory
        full = 0 if memory.straight else memory.vector_size // (memory.spec.lanes * self.groups)
        return self._left(full, 1) + 1

    def _left(self, count: int, terms: int) -> int:
        """Terms that a loop adds: all of its steps', or one a block."""
        sizes = self.memory.spec.blocks(count, terms)
        return -(-count // sizes[-1]) if sizes else count * terms

    def _hoist(self) -> None:
        """Compute what does not vary before the loops, so that it is known wherever it is used."""
        memory = self.memory

        def needs(value: SSAValue) -> Sequence[SSAValue]:
            kept = value is not origin(value) and origin(value) in memory.scratch
            return () if kept or value not in memory.varying else reads(value)

        for value in reached([*(op.value for op in (*self.reduces, *self.stores)), *self.kept], needs):
            if value not in memory.varying:
                for point in self.points:
                    point.widened(value, self.scalars.lanes)

    def _nest(self, dims: list[int], cursor: Cursor, position: Value, carried: list[Value]) -> list[Value]:
        """Loops over the reduce dims that are not vectorised; `position` counts scratch elements."""
        memory, em = self.memory, self.em
        if not dims:
            return (
                self._vectors(cursor, position, carried)
                if memory.inner
                else self._points(cursor, position, carried)
            )
        step = (
            -(-memory.vector_size // memory.spec.lanes) * memory.spec.lanes
            if memory.inner
            else (memory.spec.unroll * memory.spec.lanes)
        )
        for dim in dims[1:]:
            step *= memory.nest.dims[dim].size

        def body(i: Value, acc: list[Value]) -> list[Value]:
            at = em.b.add(position, em.scaled(i, step)) if memory.scratch else position
            return self._nest(dims[1:], memory.moved(cursor, dims[0], i), at, acc)

        return self._walk(memory.nest.dims[dims[0]].size, self._terms(dims[1:]), carried, body)

    def _points(self, cursor: Cursor, position: Value, acc: list[Value]) -> list[Value]:
        """One reduce point for all vectors of points."""
        for group, point in enumerate(self.points):
            at = self._offset(position, group * self.memory.spec.lanes)
            self._cell(Cell(point, cursor, point.shift, point.active, at), acc, group)
        return acc

    def _vectors(self, cursor: Cursor, position: Value, acc: list[Value]) -> list[Value]:
        """The vectorised reduce dim: blocks of `unroll` vectors, then single vectors, then a masked one."""
        memory, em = self.memory, self.em
        assert memory.vector is not None
        lanes, size = memory.spec.lanes, memory.vector.size
        chunk = lanes * self.groups
        full = 0 if memory.straight else size // chunk

        def body(i: Value, carried: list[Value]) -> list[Value]:
            at = em.scaled(i, chunk)
            moved = memory.moved(cursor, memory.spec.vector_dim, at)
            start = em.b.add(position, at) if memory.scratch else position
            for group in self._in_order(range(self.groups)):
                cell = Cell(self.points[0], moved, group * lanes, lanes, self._offset(start, group * lanes))
                self._cell(cell, carried, group)
            return carried

        def blocks(carried: list[Value]) -> list[Value]:
            return self._walk(full, 1, carried, body)

        def rest(carried: list[Value]) -> list[Value]:
            for group, at in self._in_order(list(enumerate(range(full * chunk, size, lanes)))):
                self._cell(self._cell_at(at, min(lanes, size - at), cursor, position), carried, group)
            return carried

        for part in self._in_order((blocks, rest)):
            acc = part(acc)
        return acc

    def _cell_at(self, at: int, active: int, cursor: Cursor, position: Value) -> Cell:
        """The vector at a known index of the vectorised dim; one that later phases find again if it is kept."""
        memory, point = self.memory, self.points[0]
        cell = point.cells.get(at)
        if cell is None:
            cell = Cell(point, cursor, at, active, self._offset(position, at))
            if memory.straight:
                point.cells[at] = cell
        return cell

    def _offset(self, position: Value, offset: int) -> Value:
        if not self.memory.scratch or offset == 0:
            return position
        return self.em.b.add(position, self.em.index(offset))

    def _masked(self, cell: Cell, op: ReduceOp | ScanOp) -> Value:
        """The operand, with the identity in lanes past the end of the reduce dim."""
        value, lanes = cell.value(op.value), self.scalars.lanes
        if not self.memory.inner or cell.active == lanes:
            return value
        identity = self.scalars.identity(op.combine.data, dtype_of(op.value))
        return self.em.b.select(self.em.lane_mask(lanes, cell.active), value, identity)

    def _scan(self, cell: Cell, acc: list[Value], group: int) -> None:
        first = len(self.reduces) * self.groups + (0 if self.memory.inner else group)
        for number, op in enumerate(self.scans):
            at = first + number * self.carries
            value = self._masked(cell, op)
            result, acc[at] = scan_step(self.scalars, op, acc[at], value, along=self.memory.inner)
            cell.values[op.result] = self.scalars.settled(result, dtype_of(op.value))

    def _cell(self, cell: Cell, acc: list[Value], group: int) -> None:
        em, lanes = self.em, self.scalars.lanes
        self._scan(cell, acc, group)
        for number, op in enumerate(self.reduces):
            how, dtype = op.combine.data, dtype_of(op.value)
            value = self._masked(cell, op)
            at = number * self.groups + group
            acc[at] = self.scalars.combine(how, dtype, acc[at], value)
        for value in self.kept:
            dtype = register_of(value)
            target = em.address(self.memory.scratch[value], cell.position, dtype)
            em.store(cell.value(value), target, dtype, lanes)
        # All values before any store: an output may lie on an input.
        for op, value in [(op, cell.value(op.value)) for op in self.stores]:
            self.memory.store(value, op, cell.cursor, cell.shift, lanes, cell.active)


def combined(scalars: Scalars, how: str, dtype: str, partial: Sequence[Value]) -> Value:
    """Partial results to one scalar: pairwise over the vectors, then over the lanes."""
    values, lanes = list(partial), scalars.lanes
    while len(values) > 1:
        half = (len(values) + 1) // 2
        pairs = zip(values, values[half:], strict=False)
        values = [scalars.combine(how, dtype, x, y) for x, y in pairs] + values[len(values) - half : half]
    value = values[0]
    while lanes > 1:
        lanes //= 2
        value = scalars.of(lanes).combine(how, dtype, *scalars.em.halves(value))
    return value
