"""Code for generated kernels: pointwise loops, and reductions in phases.

A *point* is one iteration of the parallel dims (or a vector of them); a *cell* is one vector of the reduce space at
a point. If a parallel dim is vectorised, several points run side by side and reductions need no combining; if a reduce
dim is, a point is scalar and its partial results are combined in a fixed order. All decisions come with `LoopSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.backends.cpu.indexed_loads import Memory, WideLoad, indexed_load
from aicf.backends.cpu.ir_builder import I8, Emitter, Value
from aicf.backends.cpu.loop_spec import SCRATCH_BYTES, LoopSpec
from aicf.backends.cpu.philox import neighbouring_words
from aicf.backends.cpu.scalar_ops import Scalars, convert, dtype_of
from aicf.backends.cpu.scans import scan_step
from aicf.backends.cpu.target import ELEMENT_BYTES, REGISTERS
from aicf.backends.lanes import LaneSteps
from aicf.backends.nests import Dim, LoopNest, origin, reads
from aicf.dialects.emit_kernels import IndexOp, LoadOp, PhaseOp, PhiloxOp, ReduceOp, ScanOp, StoreOp, scans_of

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class LoopPointers:
    """Run-time operands: one address per access of the nest, and which thread this is."""

    accesses: tuple[Value, ...]
    tid: Value
    nthreads: Value


def emit_loops(em: Emitter, nest: LoopNest, spec: LoopSpec, pointers: LoopPointers) -> None:
    """Emit the kernel at the current position of `em`."""
    _Loops(em, nest, spec, pointers).run()


def share_of(em: Emitter, total: int, tid: Value, nthreads: Value) -> tuple[Value, Value]:
    """First and past-the-last item of this thread's contiguous share of `total`."""
    count = em.index(total)
    low = em.b.sdiv(em.b.mul(tid, count), nthreads)
    high = em.b.sdiv(em.b.mul(em.b.add(tid, em.index(1)), count), nthreads)
    return low, high


class Evaluator:
    """Computes values of a kernel body on demand, operands first, each once."""

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars
        self.values: dict[SSAValue, Value] = {}

    def value(self, root: SSAValue) -> Value:
        """The value of `root`, emitting what is missing."""
        stack = [root]
        while stack:
            current = stack[-1]
            if self.known(current) is not None:
                stack.pop()
                continue
            missing = [operand for operand in self.needs(current) if self.known(operand) is None]
            if missing:
                stack.extend(reversed(missing))
                continue
            self.values[current] = self.compute(current)
            stack.pop()
        found = self.known(root)
        assert found is not None
        return found

    def known(self, value: SSAValue) -> Value | None:
        """What is computed already."""
        return self.values.get(value)

    def needs(self, value: SSAValue) -> tuple[SSAValue, ...]:
        """What `compute` wants known. Some ask by themselves: of their indices often one lane is enough."""
        return () if isinstance(value, OpResult) and isinstance(value.op, LoadOp | PhiloxOp) else reads(value)

    def compute(self, value: SSAValue) -> Value:
        """The value, its operands being known."""
        if isinstance(value, BlockArgument):
            return self.load(value.index)
        assert isinstance(value, OpResult)
        if isinstance(value.op, PhaseOp):
            return self.value(value.op.terminator.operands[value.index])
        if isinstance(value.op, IndexOp):
            return self.scalars.counted(*self.coordinate(value.op.number), dtype_of(value))
        if isinstance(value.op, LoadOp):
            return self.load_at(value.op)
        if isinstance(value.op, PhiloxOp):
            return self.random(value.op)
        return self.scalars.emit(value.op, self.operands(value.op))

    def operands(self, op: Operation) -> list[Value]:
        """The values of an op's operands."""
        return [self.value(operand) for operand in op.operands]

    def random(self, op: PhiloxOp) -> Value:
        """The random word(s) here."""
        return self.scalars.emit(op, self.operands(op))

    def load(self, operand: int) -> Value:
        """The element(s) of an operand here."""
        raise NotImplementedError

    def coordinate(self, dim: int) -> tuple[Value, int]:
        """The coordinate of the first lane along a dim of the iteration space (i64), and from lane to lane."""
        raise NotImplementedError

    def load_at(self, op: LoadOp) -> Value:
        """The element(s) at computed indices."""
        raise NotImplementedError


@dataclass(frozen=True)
class Place:
    """Where a loop body is: the address of each access there, and the index of each loop that the kernel counts."""

    addresses: tuple[Value, ...]
    indices: Mapping[int, Value]


class _FirstLane(Evaluator):
    """Values in the first lane alone: what addresses of wide loads are made of."""

    def __init__(self, vector: _Point | _Cell) -> None:
        super().__init__(vector.scalars.of(1))
        self.vector = vector

    def known(self, value: SSAValue) -> Value | None:
        if (found := self.vector.known_scalar(value)) is not None:
            return found
        return super().known(value)

    def load(self, operand: int) -> Value:
        vector = self.vector
        return vector.loops.load(operand, vector.place, vector.shift, 1, 1)

    def coordinate(self, dim: int) -> tuple[Value, int]:
        return self.vector.coordinate(dim)

    def compute(self, value: SSAValue) -> Value:
        if isinstance(value, OpResult) and isinstance(value.op, ReduceOp):
            return self.scalars.em.lane(self.vector.value(value), 0)
        return super().compute(value)

    def load_at(self, op: LoadOp) -> Value:
        loops = self.vector.loops
        return indexed_load(self.scalars, op, loops.memory(op, self.vector.place), self.value)


class _Point(Evaluator):
    """What does not vary over the reduce space, at one point or one vector of points."""

    def __init__(self, loops: _Loops, place: Place, shift: int, lanes: int, active: int) -> None:
        super().__init__(loops.scalars.of(lanes))
        self.loops = loops
        self.place = place
        self.shift = shift
        self.active = active
        self.wide: dict[SSAValue, Value] = {}
        self.cells: dict[int, _Cell] = {}
        self.first = _FirstLane(self)

    def known_scalar(self, value: SSAValue) -> Value | None:
        """What is computed already, if it is a scalar."""
        return self.known(value) if self.scalars.lanes == 1 else None

    def load_at(self, op: LoadOp) -> Value:
        return self.loops.load_at(op, self)

    def random(self, op: PhiloxOp) -> Value:
        return self.loops.random(op, self)

    def load(self, operand: int) -> Value:
        return self.loops.load(operand, self.place, self.shift, self.scalars.lanes, self.active)

    def coordinate(self, dim: int) -> tuple[Value, int]:
        return self.loops.coordinate(dim, self.place, self.shift)

    def compute(self, value: SSAValue) -> Value:
        assert not (isinstance(value, OpResult) and isinstance(value.op, ReduceOp)), "read before its phase"
        return super().compute(value)

    def widened(self, value: SSAValue, lanes: int) -> Value:
        """The value in every lane of a cell."""
        if lanes == self.scalars.lanes:
            return self.value(value)
        if value not in self.wide:
            source = origin(value)
            if isinstance(source, OpResult) and isinstance(source.op, arith.ConstantOp):
                self.wide[value] = self.scalars.of(lanes).emit(source.op, [])
            else:
                self.wide[value] = self.scalars.em.splat(self.value(value), lanes)
        return self.wide[value]


class _Cell(Evaluator):
    """One vector of the reduce space."""

    def __init__(self, point: _Point, place: Place, shift: int, active: int, position: Value) -> None:
        super().__init__(point.loops.scalars)
        self.point = point
        self.place = place
        self.shift = shift
        self.active = active
        self.position = position
        self.first = _FirstLane(self)

    @property
    def loops(self) -> _Loops:
        """Those around it."""
        return self.point.loops

    def known_scalar(self, value: SSAValue) -> Value | None:
        """What is known of the point, if the point is one."""
        is_one = self.point.scalars.lanes == 1 and value not in self.loops.varying
        return self.point.value(value) if is_one else None

    def load_at(self, op: LoadOp) -> Value:
        return self.loops.load_at(op, self)

    def random(self, op: PhiloxOp) -> Value:
        return self.loops.random(op, self)

    def known(self, value: SSAValue) -> Value | None:
        if value not in self.point.loops.varying:
            return self.point.widened(value, self.scalars.lanes)
        return self.values.get(value)

    def _is_kept(self, value: SSAValue) -> bool:
        """Whether an earlier phase has left the value in scratch."""
        return value is not origin(value) and origin(value) in self.point.loops.scratch

    def needs(self, value: SSAValue) -> tuple[SSAValue, ...]:
        return () if self._is_kept(value) else super().needs(value)

    def compute(self, value: SSAValue) -> Value:
        if self._is_kept(value):
            return self.point.loops.load_scratch(origin(value), self.position)
        return super().compute(value)

    def load(self, operand: int) -> Value:
        return self.point.loops.load(operand, self.place, self.shift, self.scalars.lanes, self.active)

    def coordinate(self, dim: int) -> tuple[Value, int]:
        return self.point.loops.coordinate(dim, self.place, self.shift)


class _Loops:
    def __init__(self, em: Emitter, nest: LoopNest, spec: LoopSpec, pointers: LoopPointers) -> None:
        self.em = em
        self.nest = nest
        self.spec = spec
        self.pointers = pointers
        self.kernel = nest.kernel
        self.scalars = Scalars(em, spec.lanes, spec.rounding == "strict")
        self.varying = nest.kernel.varying_values()
        self.vector: Dim | None = nest.dims[spec.vector_dim] if spec.vector_dim >= 0 else None
        self.inner = self.vector is not None and self.vector.is_reduce
        self.steps = LaneSteps(nest, spec.vector_dim if spec.vector_dim >= 0 else None, spec.lanes)
        self.reduce = [i for i in nest.reduce_dims if i != spec.vector_dim]
        self.straight = self.inner and not self.reduce and -(-self.vector_size // spec.lanes) <= spec.unroll
        self.scratch = {} if self.straight else self._allocate_scratch()

    @property
    def vector_size(self) -> int:
        return 1 if self.vector is None else self.vector.size

    def _allocate_scratch(self) -> dict[SSAValue, Value]:
        """Stack for values that a later phase reads again, as far as it is small."""
        padded = -(-self.vector_size // self.spec.lanes) * self.spec.lanes if self.inner else 1
        for dim in self.reduce:
            padded *= self.nest.dims[dim].size
        elements = padded if self.inner else padded * self.spec.unroll * self.spec.lanes
        found: dict[SSAValue, Value] = {}
        for phase in self.kernel.phases:
            for result in phase.results:
                source = origin(result)
                size = elements * ELEMENT_BYTES[_register_of(source)]
                if result in self.varying and result.uses and source not in found and size <= SCRATCH_BYTES:
                    found[source] = self.em.stack(I8, size)
        return found

    # Memory.

    def stride(self, access: int) -> int:
        """Distance between the lanes of a vector."""
        return 0 if self.vector is None else self.vector.strides[access]

    def load(self, access: int, place: Place, shift: int, lanes: int, active: int) -> Value:
        """Elements of a read access at `place`, `shift` vector steps further on; its memory may hold a wider type."""
        dtype, stride = self.nest.accesses[access].dtype, self.stride(access)
        address = self.em.address(place.addresses[access], shift * stride, dtype)
        loaded = self.em.load_strided(address, stride, dtype, lanes, active)
        if (own := dtype_of(self.kernel.body.block.args[access])) == dtype:
            return loaded
        scalars = self.scalars.of(lanes)
        return scalars.settled(convert(scalars, loaded, dtype, own), own)

    def coordinate(self, dim: int, place: Place, shift: int) -> tuple[Value, int]:
        """The coordinate along a dim of the kernel, `shift` vector steps from `place`, and from lane to lane."""
        loop = self.nest.coordinates[dim]
        if loop is None:
            return self.em.index(0), 0
        index = place.indices[loop]
        if loop != self.spec.vector_dim:
            return index, 0
        return (self.em.b.add(index, self.em.index(shift)) if shift else index), 1

    def memory(self, op: LoadOp, place: Place) -> Memory:
        """What a load reads."""
        assert isinstance(op.memory, BlockArgument)
        number = op.memory.index
        return Memory(place.addresses[number], self.nest.accesses[number].dtype, self.nest.indexed[number])

    def load_at(self, op: LoadOp, vector: _Point | _Cell) -> Value:
        """The elements that a load reads in all lanes of a vector."""
        memory = self.memory(op, vector.place)
        if vector.scalars.lanes == 1:
            return indexed_load(vector.scalars, op, memory, vector.value)
        wide = WideLoad(vector.scalars, op, memory, self.steps, vector.active)
        return wide.emit(vector.value, vector.first.value)

    def random(self, op: PhiloxOp, vector: _Point | _Cell) -> Value:
        """The random words in all lanes of a vector."""
        lanes = vector.scalars.lanes
        if self.steps.shares_counters(op, lanes):
            return neighbouring_words(self.em, lanes, vector.first.operands(op))
        return vector.scalars.emit(op, vector.operands(op))

    def store(self, value: Value, op: StoreOp, place: Place, shift: int, lanes: int, active: int) -> None:
        """Write an output, in a wider type if that is what its memory holds."""
        access = self.nest.inputs + op.output.value.data
        dtype, stride = self.nest.accesses[access].dtype, self.stride(access)
        if (own := dtype_of(op.value)) != dtype:
            scalars = self.scalars.of(lanes)
            value = convert(scalars, scalars.rounded(value, own), own, dtype)
        address = self.em.address(place.addresses[access], shift * stride, dtype)
        self.em.store_strided(value, address, stride, dtype, lanes, active)

    def load_scratch(self, source: SSAValue, position: Value) -> Value:
        """A value kept by an earlier phase."""
        dtype = _register_of(source)
        return self.em.load(self.em.address(self.scratch[source], position, dtype), dtype, self.spec.lanes)

    def moved(self, place: Place, dim: int, index: Value) -> Place:
        """The place at `index` of a loop."""
        steps = zip(place.addresses, self.nest.dims[dim].strides, self.nest.accesses, strict=True)
        addresses = tuple(self.em.moved(base, index, stride, access.dtype) for base, stride, access in steps)
        indices = {**place.indices, dim: index} if dim in self.nest.coordinates else place.indices
        return Place(addresses, indices)

    # Parallel space.

    def run(self) -> None:
        accesses = zip(self.pointers.accesses, self.nest.accesses, strict=True)
        starts = tuple(self.em.address(pointer, access.offset, access.dtype) for pointer, access in accesses)
        first = Place(starts, {dim: self.em.index(0) for dim in self.nest.coordinates if dim is not None})
        self.parallel([i for i in self.nest.parallel_dims if i != self.spec.vector_dim], first)

    def parallel(self, dims: list[int], place: Place) -> None:
        if not dims:
            self.points(place)
            return
        dim = self.nest.dims[dims[0]]

        def body(i: Value, _: list[Value]) -> list[Value]:
            self.parallel(dims[1:], self.moved(place, dims[0], i))
            return []

        if dims[0] == self.spec.partition_dim:
            low, high = share_of(self.em, dim.size, self.pointers.tid, self.pointers.nthreads)
            self.em.loop(low, high, 1, [], body)
        else:
            self.em.loop(0, dim.size, 1, [], body)

    def points(self, place: Place) -> None:
        """All points along the vector dim, or the one point."""
        if self.vector is None or self.inner:
            self.block(place, [1])
            return
        em, spec, vector = self.em, self.spec, self.vector
        chunk = spec.lanes * spec.unroll
        full = vector.size // chunk

        def body(i: Value, _: list[Value]) -> list[Value]:
            self.block(self.moved(place, spec.vector_dim, em.scaled(i, chunk)), [spec.lanes] * spec.unroll)
            return []

        rest = vector.size - full * chunk
        actives = [min(spec.lanes, rest - at) for at in range(0, rest, spec.lanes)]

        def tail() -> None:
            self.block(self.moved(place, spec.vector_dim, em.index(full * chunk)), actives)

        if spec.partition_dim != spec.vector_dim:
            em.loop(0, full, 1, [], body)
            if rest:
                tail()
            return
        low, high = share_of(em, full, self.pointers.tid, self.pointers.nthreads)
        em.loop(low, high, 1, [], body)
        if rest:
            last = em.b.sub(self.pointers.nthreads, em.index(1))
            em.when(em.b.icmp_signed("==", self.pointers.tid, last), tail)

    def block(self, place: Place, actives: list[int]) -> None:
        """All phases for points side by side."""
        lanes = 1 if self.inner or self.vector is None else self.spec.lanes
        points = [_Point(self, place, u * lanes, lanes, active) for u, active in enumerate(actives)]
        for phase in self.kernel.phases:
            self.phase(phase, points)

    # Phases.

    def phase(self, phase: PhaseOp, points: list[_Point]) -> None:
        ops = list(phase.body.block.ops)
        reduces = [op for op in ops if isinstance(op, ReduceOp)]
        stores = [op for op in ops if isinstance(op, StoreOp)]
        inside = [op for op in stores if self.kernel.writes_reduce_space(op.output.value.data)]
        kept = [
            value for value in self.scratch if isinstance(value, OpResult) and value.op.parent_op() is phase
        ]
        if reduces or inside:
            _Sweep(self, points, reduces, scans_of(ops), inside, kept).run()
        # All values before any store: an output may lie on an input.
        outside = [
            (point, op, point.value(op.value)) for op in stores if op not in inside for point in points
        ]
        for point, op, value in outside:
            self.store(value, op, point.place, point.shift, point.scalars.lanes, point.active)


class _Sweep:
    """One pass over the reduce space: accumulates reductions and scans, stores, and keeps values for later phases."""

    def __init__(
        self,
        loops: _Loops,
        points: list[_Point],
        reduces: list[ReduceOp],
        scans: list[ScanOp],
        stores: list[StoreOp],
        kept: Sequence[SSAValue],
    ) -> None:
        self.loops = loops
        self.em = loops.em
        self.points = points
        self.reduces = reduces
        self.scans = scans
        self.backward = any(op.is_reverse for op in scans)
        self.stores = stores
        self.kept = kept
        self.scalars = loops.scalars
        self.groups = loops.spec.unroll if loops.inner else len(points)

    def run(self) -> None:
        self._hoist()
        start = [
            self.scalars.identity(op.combine.data, dtype_of(op.value))
            for op in self.reduces
            for _ in range(self.groups)
        ]
        start += [
            self.scalars.identity(op.combine.data, dtype_of(op.value))
            for op in self.scans
            for _ in range(self.carries)
        ]
        results = self._nest(self.loops.reduce, self.points[0].place, self.em.index(0), start)
        for number, op in enumerate(self.reduces):
            partial = results[number * self.groups : (number + 1) * self.groups]
            if self.loops.inner:
                partial = [combined(self.scalars, op.combine.data, dtype_of(op.value), partial)]
            for point, value in zip(self.points, partial, strict=True):
                point.values[op.result] = point.scalars.settled(value, dtype_of(op.value))

    @property
    def carries(self) -> int:
        """What a scan carries along: one value for each point, be they side by side or one."""
        return 1 if self.loops.inner else self.groups

    def _in_order(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Steps along the reduce dim in the order in which the scans walk."""
        return items[::-1] if self.backward else items

    def _walk(
        self, count: int, carried: list[Value], body: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """A loop over `count` steps of the reduce dim, in the order in which the scans walk."""
        em = self.em
        if not self.backward:
            return em.loop(0, count, 1, carried, body)
        return em.loop(0, count, 1, carried, lambda i, acc: body(em.b.sub(em.index(count - 1), i), acc))

    def _hoist(self) -> None:
        """Compute what does not vary before the loops, so that it is known wherever it is used."""
        loops = self.loops
        stack: list[SSAValue] = [op.value for op in (*self.reduces, *self.stores)] + list(self.kept)
        seen: set[SSAValue] = set()
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value not in loops.varying:
                for point in self.points:
                    point.widened(value, self.scalars.lanes)
            elif value is origin(value) or origin(value) not in loops.scratch:
                stack.extend(reads(value))

    def _nest(self, dims: list[int], place: Place, position: Value, carried: list[Value]) -> list[Value]:
        """Loops over the reduce dims that are not vectorised; `position` counts scratch elements."""
        loops, em = self.loops, self.em
        if not dims:
            return (
                self._vectors(place, position, carried)
                if loops.inner
                else self._points(place, position, carried)
            )
        step = (
            -(-loops.vector_size // loops.spec.lanes) * loops.spec.lanes
            if loops.inner
            else (loops.spec.unroll * loops.spec.lanes)
        )
        for dim in dims[1:]:
            step *= loops.nest.dims[dim].size

        def body(i: Value, acc: list[Value]) -> list[Value]:
            at = em.b.add(position, em.scaled(i, step)) if loops.scratch else position
            return self._nest(dims[1:], loops.moved(place, dims[0], i), at, acc)

        return self._walk(loops.nest.dims[dims[0]].size, carried, body)

    def _points(self, place: Place, position: Value, acc: list[Value]) -> list[Value]:
        """One reduce point for all vectors of points."""
        for group, point in enumerate(self.points):
            at = self._offset(position, group * self.loops.spec.lanes)
            self._cell(_Cell(point, place, point.shift, point.active, at), acc, group)
        return acc

    def _vectors(self, place: Place, position: Value, acc: list[Value]) -> list[Value]:
        """The vectorised reduce dim: blocks of `unroll` vectors, then single vectors, then a masked one."""
        loops, em = self.loops, self.em
        assert loops.vector is not None
        lanes, size = loops.spec.lanes, loops.vector.size
        chunk = lanes * self.groups
        full = 0 if loops.straight else size // chunk

        def body(i: Value, carried: list[Value]) -> list[Value]:
            at = em.scaled(i, chunk)
            moved = loops.moved(place, loops.spec.vector_dim, at)
            start = em.b.add(position, at) if loops.scratch else position
            for group in self._in_order(range(self.groups)):
                cell = _Cell(self.points[0], moved, group * lanes, lanes, self._offset(start, group * lanes))
                self._cell(cell, carried, group)
            return carried

        def blocks(carried: list[Value]) -> list[Value]:
            return self._walk(full, carried, body)

        def rest(carried: list[Value]) -> list[Value]:
            for group, at in self._in_order(list(enumerate(range(full * chunk, size, lanes)))):
                self._cell(self._cell_at(at, min(lanes, size - at), place, position), carried, group)
            return carried

        for part in self._in_order((blocks, rest)):
            acc = part(acc)
        return acc

    def _cell_at(self, at: int, active: int, place: Place, position: Value) -> _Cell:
        """The vector at a place of the vectorised dim that is known; one that later phases find again if it is kept."""
        loops, point = self.loops, self.points[0]
        cell = point.cells.get(at)
        if cell is None:
            cell = _Cell(point, place, at, active, self._offset(position, at))
            if loops.straight:
                point.cells[at] = cell
        return cell

    def _offset(self, position: Value, offset: int) -> Value:
        if not self.loops.scratch or offset == 0:
            return position
        return self.em.b.add(position, self.em.index(offset))

    def _masked(self, cell: _Cell, op: ReduceOp | ScanOp) -> Value:
        """The operand, with the identity in lanes past the end of the reduce dim."""
        value, lanes = cell.value(op.value), self.scalars.lanes
        if not self.loops.inner or cell.active == lanes:
            return value
        identity = self.scalars.identity(op.combine.data, dtype_of(op.value))
        return self.em.b.select(self.em.lane_mask(lanes, cell.active), value, identity)

    def _scan(self, cell: _Cell, acc: list[Value], group: int) -> None:
        first = len(self.reduces) * self.groups + (0 if self.loops.inner else group)
        for number, op in enumerate(self.scans):
            at = first + number * self.carries
            value = self._masked(cell, op)
            result, acc[at] = scan_step(self.scalars, op, acc[at], value, along=self.loops.inner)
            cell.values[op.result] = self.scalars.settled(result, dtype_of(op.value))

    def _cell(self, cell: _Cell, acc: list[Value], group: int) -> None:
        em, lanes = self.em, self.scalars.lanes
        self._scan(cell, acc, group)
        for number, op in enumerate(self.reduces):
            how, dtype = op.combine.data, dtype_of(op.value)
            value = self._masked(cell, op)
            at = number * self.groups + group
            acc[at] = self.scalars.combine(how, dtype, acc[at], value)
        for value in self.kept:
            dtype = _register_of(value)
            target = em.address(self.loops.scratch[value], cell.position, dtype)
            em.store(cell.value(value), target, dtype, lanes)
        # All values before any store: an output may lie on an input.
        for op, value in [(op, cell.value(op.value)) for op in self.stores]:
            self.loops.store(value, op, cell.place, cell.shift, lanes, cell.active)


def _register_of(value: SSAValue) -> str:
    """Element type of the register that holds a value."""
    return REGISTERS[dtype_of(value)]


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
