"""Code that keeps the best of boxes that overlap, class by class.

The boxes of a class come in the order of `ranking.py`, and each is compared with those that were kept before it, a
register of them at a time, until one overlaps it or there are no more. What was kept lies number by number, so that a
load has the same number of as many boxes as a register has lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.families.nms.ranking import Ranking
from aicf.backends.cpu.families.nms.schedule import BOX_NUMBERS, SuppressionSpec

_INDEX = "i64"


@dataclass(frozen=True)
class SuppressionPointers:
    """Run-time operands of the emitted code; `workspace` has a share for each thread."""

    boxes: Value
    scores: Value
    overlap: Value
    floor: Value | None
    kept: Value
    workspace: Value


@dataclass(frozen=True)
class _Box:
    """Low and high along two dimensions, and the area; NaN if a coordinate is. A box, or one in each lane."""

    low: Sequence[Value]
    high: Sequence[Value]
    area: Value

    @property
    def numbers(self) -> tuple[Value, ...]:
        """As they lie in the workspace."""
        return (*self.low, *self.high, self.area)


@dataclass(frozen=True)
class _Class:
    """Where the operands of one class lie, and the kept boxes of a thread."""

    boxes: Value
    result: Value
    kept: Value
    overlap: Value


@dataclass(frozen=True)
class Suppression:
    """Where the operands lie, whether a box is its centre and size, and how the kernel goes about it."""

    boxes: Strided
    scores: Strided
    kept: Strided
    centred: bool
    spec: SuppressionSpec

    @property
    def dtype(self) -> str:
        """Of boxes and scores."""
        return self.scores.dtype

    def emit(self, em: Emitter, at: SuppressionPointers, tid: Value, nthreads: Value) -> None:
        """All classes of all samples, each thread its share."""
        samples, classes, _ = self.scores.shape
        overlap = em.load(at.overlap, self.dtype, 1)
        floor = None if at.floor is None else em.load(at.floor, self.dtype, 1)
        share = em.moved(at.workspace, tid, self.spec.share_bytes, "i8")
        tree = em.address(share, BOX_NUMBERS * self.spec.row, self.dtype)

        low, high = share_of(em, samples * classes, tid, nthreads)

        @em.each(low, high)
        def one(number: Value) -> None:
            sample, category = (operation(number, em.index(classes)) for operation in (em.b.sdiv, em.b.srem))
            scores, result = (
                em.moved(
                    em.moved(base, sample, lies.strides[0], lies.dtype), category, lies.strides[1], lies.dtype
                )
                for base, lies in ((at.scores, self.scores), (at.kept, self.kept))
            )
            boxes = em.moved(at.boxes, sample, self.boxes.strides[0], self.dtype)
            ranking = Ranking(em, self.spec, scores, self.scores.strides[2], floor, tree)
            self._class(em, ranking, _Class(boxes, result, share, overlap))

    def _class(self, em: Emitter, ranking: Ranking, at: _Class) -> None:
        """Box by box while there is one and room for it; -1 after the last that is kept."""
        limit = em.index(self.spec.limit)

        def goes_on(state: list[Value]) -> Value:
            count, best, _ = state
            return em.b.and_(em.b.icmp_signed("<", count, limit), em.b.not_(ranking.is_none(best)))

        def visit(state: list[Value]) -> Sequence[Value]:
            count, best, taken = state
            box, following = ranking.take(best, taken)
            is_equal = em.b.icmp_signed("==", following, best)
            return self._visited(em, at, box, count), following, em.b.select(is_equal, box, em.index(-1))

        count, *_ = em.loop_while([em.index(0), ranking.build(), em.index(-1)], goes_on, visit)

        @em.each(count, limit)
        def clear(index: Value) -> None:
            self._write(em, at, index, em.index(-1))

    def _visited(self, em: Emitter, at: _Class, number: Value, count: Value) -> Value:
        """How many boxes are kept, with this one if it overlaps none of the `count` before it."""
        box = self._box(em, at, number)
        wide = [em.splat(value, self.spec.lanes) for value in box.numbers]
        candidate = _Box(wide[:2], wide[2:4], wide[4])
        lanes = em.index(self.spec.lanes)
        registers = em.b.sdiv(em.b.add(count, em.index(self.spec.lanes - 1)), lanes)

        def is_free(left: Value) -> Value:
            first = em.b.mul(em.b.sub(registers, left), lanes)
            return em.no_lane(self._overlaps(em, candidate, self._kept(em, at, first), at.overlap))

        left = em.descend(registers, is_free, lambda left: em.b.sub(left, em.index(1)))
        stays = em.b.icmp_signed("==", left, em.index(0))

        def keep() -> None:
            self._write(em, at, count, number)
            for row, value in enumerate(wide):
                em.store(value, self._row(em, at, row, count), self.dtype, self.spec.lanes)

        em.when(stays, keep)
        return em.b.add(count, em.b.zext(stays, count.type))

    def _write(self, em: Emitter, at: _Class, index: Value, box: Value) -> None:
        em.store(box, em.moved(at.result, index, self.kept.strides[2], _INDEX), _INDEX, 1)

    def _row(self, em: Emitter, at: _Class, row: int, first: Value) -> Value:
        return em.address(em.address(at.kept, row * self.spec.row, self.dtype), first, self.dtype)

    def _kept(self, em: Emitter, at: _Class, first: Value) -> _Box:
        """A register of kept boxes; lanes after the last repeat it."""
        rows = [
            em.load(self._row(em, at, row, first), self.dtype, self.spec.lanes) for row in range(BOX_NUMBERS)
        ]
        return _Box(rows[:2], rows[2:4], rows[4])

    def _box(self, em: Emitter, at: _Class, number: Value) -> _Box:
        base = em.moved(at.boxes, number, self.boxes.strides[1], self.dtype)
        numbers = [
            em.load(em.address(base, index * self.boxes.strides[2], self.dtype), self.dtype, 1)
            for index in range(4)
        ]
        pairs = [self._ends(em, numbers[dim], numbers[dim + 2]) for dim in range(2)]
        low, high = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return _Box(low, high, self._product(em, low, high))

    def _ends(self, em: Emitter, first: Value, second: Value) -> tuple[Value, Value]:
        """Low and high along one dimension, of two corners or of centre and size."""
        if self.centred:
            half = em.b.fmul(second, em.const(self.dtype, 1, 0.5))
            return em.b.fsub(first, half), em.b.fadd(first, half)
        return self._sorted(em, first, second)

    def _sorted(self, em: Emitter, first: Value, second: Value) -> tuple[Value, Value]:
        is_low = em.b.fcmp_ordered("<", first, second)
        return em.b.select(is_low, first, second), em.b.select(is_low, second, first)

    def _product(self, em: Emitter, low: Sequence[Value], high: Sequence[Value]) -> Value:
        sides = [em.b.fsub(end, start) for start, end in zip(low, high, strict=True)]
        return em.b.fmul(*sides)

    def _overlaps(self, em: Emitter, a: _Box, b: _Box, overlap: Value) -> Value:
        """Whether two boxes share area, and more of it than is allowed; in each lane."""
        low = [self._sorted(em, *pair)[1] for pair in zip(a.low, b.low, strict=True)]
        high = [self._sorted(em, *pair)[0] for pair in zip(a.high, b.high, strict=True)]
        shared = self._product(em, low, high)
        both = em.b.fsub(em.b.fadd(a.area, b.area), shared)
        too_much = em.b.fcmp_ordered(">", em.b.fdiv(shared, both), em.splat(overlap, self.spec.lanes))
        for start, end in zip(low, high, strict=True):
            too_much = em.b.and_(too_much, em.b.fcmp_ordered(">", end, start))
        return too_much
