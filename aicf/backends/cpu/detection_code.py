"""Code that keeps the best of boxes that overlap, class by class.

The boxes of a class that may be kept are a list in rising order. Each round keeps the best of the list, and one pass
over it takes away what that box overlaps and finds the best of what stays: a pair of boxes is compared at most once,
and a class of which little is left costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.ir_builder import Emitter, Value
from aicf.backends.cpu.loops import share_of
from aicf.backends.nests import Strided

_INDEX = "i64"


@dataclass(frozen=True)
class SuppressionPointers:
    """Run-time operands of the emitted code; `listed` has room for all boxes for each thread."""

    boxes: Value
    scores: Value
    overlap: Value
    floor: Value | None
    kept: Value
    listed: Value


@dataclass(frozen=True)
class _Box:
    """Low and high along two dimensions, and the area; NaN if a coordinate is."""

    low: Sequence[Value]
    high: Sequence[Value]
    area: Value


@dataclass(frozen=True)
class _Class:
    """Where the operands of one class lie, and the numbers that hold for all."""

    boxes: Value
    scores: Value
    kept: Value
    listed: Value
    overlap: Value
    floor: Value | None


@dataclass(frozen=True)
class Suppression:
    """Where the operands lie, and whether a box is its centre and size."""

    boxes: Strided
    scores: Strided
    kept: Strided
    centred: bool

    @property
    def dtype(self) -> str:
        """Of boxes and scores."""
        return self.scores.dtype

    def emit(self, em: Emitter, at: SuppressionPointers, tid: Value, nthreads: Value) -> None:
        """All classes of all samples, each thread its share."""
        samples, classes, boxes = self.scores.shape
        overlap = em.load(at.overlap, self.dtype, 1)
        floor = None if at.floor is None else em.load(at.floor, self.dtype, 1)
        listed = em.moved(at.listed, tid, boxes, _INDEX)

        def one(number: Value, _: list[Value]) -> list[Value]:
            sample, category = (operation(number, em.index(classes)) for operation in (em.b.sdiv, em.b.srem))
            scores, kept = (
                em.moved(
                    em.moved(base, sample, lies.strides[0], lies.dtype), category, lies.strides[1], lies.dtype
                )
                for base, lies in ((at.scores, self.scores), (at.kept, self.kept))
            )
            own = em.moved(at.boxes, sample, self.boxes.strides[0], self.dtype)
            self._class(em, _Class(own, scores, kept, listed, overlap, floor))
            return []

        low, high = share_of(em, samples * classes, tid, nthreads)
        em.loop(low, high, 1, [], one)

    def _class(self, em: Emitter, at: _Class) -> None:
        """The list, then round by round; once it is empty the best of it is -1, which is what is written then."""
        count, best = self._list(em, at)

        def keep(place: Value, before: list[Value]) -> Sequence[Value]:
            count, best = before
            em.store(best, em.moved(at.kept, place, self.kept.strides[2], _INDEX), _INDEX, 1)
            return self._without(em, at, count, best)

        em.loop(0, self.kept.shape[2], 1, [count, best], keep)

    def _list(self, em: Emitter, at: _Class) -> Sequence[Value]:
        """Lists the boxes whose score allows it: how many they are, and the best of them, -1 if there is none."""

        def visit(box: Value, before: list[Value]) -> list[Value]:
            count, best, highest = before
            score = self._score(em, at, box)
            allowed = (
                em.b.fcmp_ordered("ord", score, score)
                if at.floor is None
                else em.b.fcmp_ordered(">", score, at.floor)
            )
            return self._listed(em, at, box, score, allowed, count, best, highest)

        start = [em.index(0), em.index(-1), em.const(self.dtype, 1, 0.0)]
        return em.loop(0, self.scores.shape[2], 1, start, visit)[:2]

    def _without(self, em: Emitter, at: _Class, count: Value, best: Value) -> Sequence[Value]:
        """The list without `best` and what that overlaps: how many stay, and the best of them."""
        # An empty list has no best box; box 0 is read in its place, and compared with nothing.
        is_none = em.b.icmp_signed("<", best, em.index(0))
        chosen = self._box(em, at, em.b.select(is_none, em.index(0), best))

        def visit(place: Value, before: list[Value]) -> list[Value]:
            count, following, highest = before
            box = em.load(em.address(at.listed, place, _INDEX), _INDEX, 1)
            goes = em.b.or_(
                em.b.icmp_signed("==", box, best),
                self._overlaps(em, chosen, self._box(em, at, box), at.overlap),
            )
            score = self._score(em, at, box)
            return self._listed(em, at, box, score, em.b.not_(goes), count, following, highest)

        start = [em.index(0), em.index(-1), em.const(self.dtype, 1, 0.0)]
        return em.loop(em.index(0), count, 1, start, visit)[:2]

    def _listed(
        self,
        em: Emitter,
        at: _Class,
        box: Value,
        score: Value,
        stays: Value,
        count: Value,
        best: Value,
        highest: Value,
    ) -> list[Value]:
        """The box behind those listed so far, if it stays: how many there are now, the best, and its score.

        It is written in any case, where the next one goes if it does not stay: the list is never longer than what was
        visited, so nothing that is still to be read is overwritten.
        """
        em.store(box, em.address(at.listed, count, _INDEX), _INDEX, 1)
        is_first = em.b.icmp_signed("<", best, em.index(0))
        is_better = em.b.or_(is_first, em.b.fcmp_ordered(">", score, highest))
        leads = em.b.and_(stays, is_better)
        return [
            em.b.add(count, em.b.zext(stays, count.type)),
            em.b.select(leads, box, best),
            em.b.select(leads, score, highest),
        ]

    def _score(self, em: Emitter, at: _Class, box: Value) -> Value:
        return em.load(em.moved(at.scores, box, self.scores.strides[2], self.dtype), self.dtype, 1)

    def _box(self, em: Emitter, at: _Class, number: Value) -> _Box:
        base = em.moved(at.boxes, number, self.boxes.strides[1], self.dtype)
        numbers = [
            em.load(em.address(base, place * self.boxes.strides[2], self.dtype), self.dtype, 1)
            for place in range(4)
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
        """Whether two boxes share area, and more of it than is allowed."""
        low = [self._sorted(em, *pair)[1] for pair in zip(a.low, b.low, strict=True)]
        high = [self._sorted(em, *pair)[0] for pair in zip(a.high, b.high, strict=True)]
        shared = self._product(em, low, high)
        both = em.b.fsub(em.b.fadd(a.area, b.area), shared)
        too_much = em.b.fcmp_ordered(">", em.b.fdiv(shared, both), overlap)
        for start, end in zip(low, high, strict=True):
            too_much = em.b.and_(too_much, em.b.fcmp_ordered(">", end, start))
        return too_much
