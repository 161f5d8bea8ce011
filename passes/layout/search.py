"""Which values of a component should lie channels-last: the least sum of predicted times that is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aicf.dialects.emit import GroupOp
from aicf.passes.layout.layout_graph import Component, LayoutGraph
from aicf.passes.layout.prices import Labels, LayoutPrices

LEAST_GAIN = 0.02
"""Part of its predicted time by which a component has to become faster to leave row-major memory: predictions are no
closer than that."""
LEAST_GAIN_US = 2.0
"""The same in microseconds: where a few instructions take next to nothing, so does what another order could save."""
BUDGET = 4000
"""Pieces of work that the search of one function may have derived and priced; it stops where it is then."""

Reasons = Mapping[GroupOp, str]


@dataclass(frozen=True)
class Found:
    """What the search found of a component.

    Args:
        last: The producers whose values lie channels-last.
        us: Predicted microseconds of all its groups so.
        row_major_us: With what is not fixed in row-major memory.
        preferred_us: With all in channels-last memory that lean there and may.
        refused: Givers that no kernel lets lie channels-last with their neighbours, and why.
        end: That the budget ended the search, empty if it did not.
    """

    last: frozenset[GroupOp]
    us: float
    row_major_us: float
    preferred_us: float
    refused: Reasons
    end: str = ""


@dataclass(frozen=True)
class LayoutSearch:
    """The search in one component.

    Args:
        fixed: What the policy says: producers, and whether their values lie channels-last.
    """

    component: Component
    graph: LayoutGraph
    prices: LayoutPrices
    fixed: Mapping[GroupOp, bool]

    def run(self) -> Found:
        """From row-major memory and from channels-last memory, flips of single producers as long as they gain.

        Row-major memory is left only for a gain of both margins.
        """
        row_major = frozenset(producer for producer, last in self.fixed.items() if last)
        preferred, refused = self.legal(row_major | (self.component.preferred - self.fixed.keys()))
        row_major_us, preferred_us = self.total(row_major), self.total(preferred)
        best, best_us = row_major, row_major_us
        if self.fixed.keys() < set(self.component.producers):
            for start in (preferred, row_major):
                labels = self._flipped(start)
                if (us := self.total(labels)) < best_us:
                    best, best_us = labels, us
        if row_major_us - best_us < max(LEAST_GAIN * row_major_us, LEAST_GAIN_US):
            best, best_us = row_major, row_major_us
        end = f"the search ended after {BUDGET} predictions" if self._is_exhausted else ""
        return Found(best, best_us, row_major_us, preferred_us, refused, end)

    def total(self, labels: Labels) -> float:
        """Predicted microseconds of all groups of the component."""
        return sum(self.prices.us(group, labels) for group in self.component.groups)

    def legal(self, labels: Iterable[GroupOp]) -> tuple[frozenset[GroupOp], Reasons]:
        """As many of `labels` as kernels take together, and why the others were dropped."""
        kept, refused = set(labels), dict[GroupOp, str]()
        while True:
            bad = [
                (group, why) for group in self.component.groups if (why := self.prices.why_not(group, kept))
            ]
            dropped = {
                producer: f"'{group.id.data}' cannot run there: {why}"
                for group, why in bad
                for producer in self._movable(group, kept)
            }
            if not dropped:
                return frozenset(kept), refused
            refused |= dropped
            kept -= dropped.keys()

    def _movable(self, group: GroupOp, labels: Labels) -> Iterator[GroupOp]:
        for producer in self.graph.touched_by(group):
            if producer in labels and producer not in self.fixed:
                yield producer

    def _flipped(self, start: frozenset[GroupOp]) -> frozenset[GroupOp]:
        """The labels after flips of single producers in text order, round after round until none gains."""
        labels, changed = set(start), True
        while changed and not self._is_exhausted:
            changed = False
            for producer in self.component.producers:
                if producer in self.fixed or self._is_exhausted:
                    continue
                if self._around(producer, labels ^ {producer}) < self._around(producer, labels) - 1e-6:
                    labels ^= {producer}
                    changed = True
        return frozenset(labels)

    def _around(self, producer: GroupOp, labels: Labels) -> float:
        return sum(self.prices.us(group, labels) for group in self.graph.with_users(producer))

    @property
    def _is_exhausted(self) -> bool:
        return self.prices.evaluations >= BUDGET
