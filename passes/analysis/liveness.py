"""Lifetimes of slots under happens-before, and how much memory any placement must take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from aicf.dialects.emit import SlotOp
from aicf.dialects.emit_types import BufferType
from aicf.passes.analysis.accesses import AccessTable
from aicf.passes.analysis.bipartite_flow import BipartiteFlow
from aicf.passes.analysis.happens_before import HappensBefore

ARENA_ALIGN = 64
"""Bytes; a cache line and the widest vector register."""


@dataclass(frozen=True)
class Lifetime:
    """The instructions that touch a slot, as positions in text order; its size and alignment in bytes."""

    slot: SlotOp
    size: int
    touches: tuple[int, ...]
    align: int = ARENA_ALIGN

    @property
    def first(self) -> int:
        """Position of the first access."""
        return self.touches[0]

    @property
    def last(self) -> int:
        """Position of the last access."""
        return self.touches[-1]

    @cached_property
    def touch_bits(self) -> int:
        """The touches in the form of the masks of `HappensBefore`."""
        return sum(1 << position for position in self.touches)


def aligned(size: int, align: int = ARENA_ALIGN) -> int:
    """`size` rounded up to a multiple of `align`."""
    return -(-size // align) * align


def slot_lifetimes(table: AccessTable, order: HappensBefore) -> list[Lifetime]:
    """One lifetime a slot that some instruction touches, in program order; sizes are aligned."""
    lifetimes: list[Lifetime] = []
    for root, accesses in table.items():
        if isinstance(root, SlotOp) and accesses:
            touches = tuple(sorted({order.position(access.instruction) for access in accesses}))
            assert isinstance(root.buffer.type, BufferType)
            lifetimes.append(Lifetime(root, aligned(root.buffer.type.span_bytes), touches))
    return lifetimes


class Interference:
    """Whether two slots may be live at the same time under happens-before."""

    def __init__(self, order: HappensBefore):
        self.order = order
        self.is_total = order.is_total
        self._before: dict[tuple[int, ...], int] = {}

    def __call__(self, one: Lifetime, other: Lifetime) -> bool:
        if self.is_total:
            return one.first <= other.last and other.first <= one.last
        return not (self._precedes(one, other) or self._precedes(other, one))

    def _precedes(self, one: Lifetime, other: Lifetime) -> bool:
        """Whether every access of `one` ends before every access of `other` starts."""
        mine = one.touch_bits
        return self._before_all(other.touches) & mine == mine

    def _before_all(self, touches: tuple[int, ...]) -> int:
        """The instructions that end before all of these start, as bits; worked out once."""
        if (known := self._before.get(touches)) is None:
            known = -1  # all bits
            for position in touches:
                known &= self.order.masks[position]
            self._before[touches] = known
        return known


def interfering(lifetimes: Sequence[Lifetime], interferes: Interference) -> list[list[int]]:
    """For each lifetime the others that may be alive with it.

    Under a total order only neighbours in time are compared, so the cost is that of the answer.
    """
    table: list[list[int]] = [[] for _ in lifetimes]
    active: list[int] = []
    for current in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].first):
        if interferes.is_total:
            active = [other for other in active if lifetimes[other].last >= lifetimes[current].first]
        for other in active:
            if interferes(lifetimes[current], lifetimes[other]):
                table[current].append(other)
                table[other].append(current)
        active.append(current)
    return table


def lower_bound(lifetimes: Sequence[Lifetime], order: HappensBefore) -> int:
    """The maximum weight, in bytes, of slots that are pairwise live at the same time: no placement takes less."""
    if order.is_total:
        return _peak(lifetimes)
    return _heaviest_antichain(lifetimes, Interference(order))


def _peak(lifetimes: Sequence[Lifetime]) -> int:
    """Highest sum of sizes at one position; intervals that meet pairwise meet in a point."""
    change: dict[int, int] = {}
    for life in lifetimes:
        change[life.first] = change.get(life.first, 0) + life.size
        change[life.last + 1] = change.get(life.last + 1, 0) - life.size
    peak = live = 0
    for position in sorted(change):
        live += change[position]
        peak = max(peak, live)
    return peak


def _heaviest_antichain(lifetimes: Sequence[Lifetime], interferes: Interference) -> int:
    """Dilworth with weights: the heaviest antichain equals the least flow that covers each slot by its size.

    "All accesses of a before all of b" is a partial order, so with it as edges the answer is total weight minus the
    largest flow from earlier to later slots through the bipartite graph of its pairs.
    """
    later = [
        sum(1 << j for j, b in enumerate(lifetimes) if a.first < b.first and i != j and not interferes(a, b))
        for i, a in enumerate(lifetimes)
    ]
    sizes = [life.size for life in lifetimes]
    return sum(sizes) - BipartiteFlow(sizes, later).most()
