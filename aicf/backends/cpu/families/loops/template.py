"""Code for generated kernels: pointwise loops, and reductions in phases.

A *point* is one iteration of the parallel dims (or a vector of them); a *cell* is one vector of the reduce space at
a point. If a parallel dim is vectorised, several points run side by side and reductions need no combining; if a reduce
dim is, a point is scalar and its partial results are combined in a fixed order. All decisions come with `LoopSpec`.

Here are the loops over points and the phases at each. What is read there is in `memory.py`, values are in `values.py`,
and a phase that walks the reduce space is a `Sweep` of `reductions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import OpResult

from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.loops.memory import Cursor, LoopMemory
from aicf.backends.cpu.families.loops.reductions import Sweep
from aicf.backends.cpu.families.loops.schedule import LoopSpec
from aicf.backends.cpu.families.loops.values import Point
from aicf.dialects.emit_kernels import PhaseOp, ReduceOp, StoreOp, scans_of


@dataclass(frozen=True)
class LoopPointers:
    """Run-time operands: one address per access of the nest, and which thread this is."""

    accesses: tuple[Value, ...]
    tid: Value
    nthreads: Value


def emit_loops(em: Emitter, nest: LoopNest, spec: LoopSpec, pointers: LoopPointers) -> None:
    """Emit the kernel at the current position of `em`."""
    _Loops(LoopMemory(em, nest, spec), pointers).run()


def share_of(em: Emitter, total: int, tid: Value, nthreads: Value) -> tuple[Value, Value]:
    """First and past-the-last item of this thread's contiguous share of `total`."""
    count = em.index(total)
    low = em.b.sdiv(em.b.mul(tid, count), nthreads)
    high = em.b.sdiv(em.b.mul(em.b.add(tid, em.index(1)), count), nthreads)
    return low, high


class _Loops:
    """The loops over points, and the phases at each."""

    def __init__(self, memory: LoopMemory, pointers: LoopPointers) -> None:
        self.memory = memory
        self.em, self.nest, self.spec = memory.em, memory.nest, memory.spec
        self.pointers = pointers

    def run(self) -> None:
        accesses = zip(self.pointers.accesses, self.nest.accesses, strict=True)
        starts = tuple(self.em.address(pointer, access.offset, access.dtype) for pointer, access in accesses)
        first = Cursor(starts, {dim: self.em.index(0) for dim in self.nest.coordinates if dim is not None})
        self.parallel([i for i in self.nest.parallel_dims if i != self.spec.vector_dim], first)

    def parallel(self, dims: list[int], cursor: Cursor) -> None:
        if not dims:
            self.points(cursor)
            return
        dim = self.nest.dims[dims[0]]

        @self.em.each(*self.share(dims[0], dim.size))
        def body(i: Value) -> None:
            self.parallel(dims[1:], self.memory.moved(cursor, dims[0], i))

    def share(self, dim: int, count: int) -> tuple[Value | int, Value | int]:
        """First and end of the steps along a dim: those of this thread where threads share it, else all."""
        if dim != self.spec.partition_dim:
            return 0, count
        return share_of(self.em, count, self.pointers.tid, self.pointers.nthreads)

    def points(self, cursor: Cursor) -> None:
        """All points along the vector dim, or the one point."""
        if self.memory.vector is None or self.memory.inner:
            self.block(cursor, [1])
            return
        em, spec, vector = self.em, self.spec, self.memory.vector
        chunk = spec.lanes * spec.unroll
        full = vector.size // chunk

        @em.each(*self.share(spec.vector_dim, full))
        def body(i: Value) -> None:
            self.block(
                self.memory.moved(cursor, spec.vector_dim, em.scaled(i, chunk)), [spec.lanes] * spec.unroll
            )

        rest = vector.size - full * chunk
        actives = [min(spec.lanes, rest - at) for at in range(0, rest, spec.lanes)]

        def tail() -> None:
            self.block(self.memory.moved(cursor, spec.vector_dim, em.index(full * chunk)), actives)

        if rest and spec.partition_dim == spec.vector_dim:
            last = em.b.sub(self.pointers.nthreads, em.index(1))
            em.when(em.b.icmp_signed("==", self.pointers.tid, last), tail)
        elif rest:
            tail()

    def block(self, cursor: Cursor, actives: list[int]) -> None:
        """All phases for points side by side."""
        lanes = 1 if self.memory.inner or self.memory.vector is None else self.spec.lanes
        points = [Point(self.memory, cursor, u * lanes, lanes, active) for u, active in enumerate(actives)]
        for phase in self.memory.kernel.phases:
            self.phase(phase, points)

    def phase(self, phase: PhaseOp, points: list[Point]) -> None:
        ops = list(phase.body.block.ops)
        reduces = [op for op in ops if isinstance(op, ReduceOp)]
        stores = [op for op in ops if isinstance(op, StoreOp)]
        inside = [op for op in stores if self.memory.kernel.writes_reduce_space(op.output.value.data)]
        kept = [
            value
            for value in self.memory.scratch
            if isinstance(value, OpResult) and value.op.parent_op() is phase
        ]
        if reduces or inside:
            Sweep(self.memory, points, reduces, scans_of(ops), inside, kept).run()
        # All values before any store: an output may lie on an input.
        outside = [
            (point, op, point.value(op.value)) for op in stores if op not in inside for point in points
        ]
        for point, op, value in outside:
            self.memory.store(value, op, point.cursor, point.shift, point.scalars.lanes, point.active)
