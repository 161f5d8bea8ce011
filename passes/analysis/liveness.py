"""Lifetimes of slots under happens-before, and how much memory any placement must take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aicf.dialects.emit import SlotOp
from aicf.dialects.emit_types import BufferType
from aicf.passes.analysis.accesses import AccessTable
from aicf.passes.analysis.happens_before import HappensBefore

ARENA_ALIGN = 64
"""Bytes; a cache line and the widest vector register."""


@dataclass(frozen=True)
class Lifetime:
    """The instructions that touch a slot, as positions in text order."""

    slot: SlotOp
    size: int
    touches: tuple[int, ...]

    @property
    def first(self) -> int:
        """Position of the first access."""
        return self.touches[0]

    @property
    def last(self) -> int:
        """Position of the last access."""
        return self.touches[-1]


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

    def __call__(self, one: Lifetime, other: Lifetime) -> bool:
        if self.is_total:
            return one.first <= other.last and other.first <= one.last
        return not (self._precedes(one, other) or self._precedes(other, one))

    def _precedes(self, one: Lifetime, other: Lifetime) -> bool:
        """Whether every access of `one` ends before every access of `other` starts."""
        mine = sum(1 << position for position in one.touches)
        return all(self.order.masks[position] & mine == mine for position in other.touches)


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
    later: dict[int, list[int]] = {
        i: [j for j, b in enumerate(lifetimes) if i != j and not interferes(a, b) and a.first < b.first]
        for i, a in enumerate(lifetimes)
    }
    capacity = _bipartite(lifetimes, later)
    total = sum(life.size for life in lifetimes)
    return total - _max_flow(capacity, "source", "sink")


_Node: TypeAlias = str | tuple[str, int]


def _bipartite(
    lifetimes: Sequence[Lifetime], later: Mapping[int, Sequence[int]]
) -> dict[_Node, dict[_Node, int]]:
    capacity: dict[_Node, dict[_Node, int]] = {"source": {}, "sink": {}}
    for i, life in enumerate(lifetimes):
        capacity["source"]["out", i] = life.size
        capacity.setdefault(("out", i), {})
        capacity.setdefault(("in", i), {})["sink"] = life.size
    for i, successors in later.items():
        for j in successors:
            capacity["out", i]["in", j] = min(lifetimes[i].size, lifetimes[j].size)
    return capacity


def _max_flow(capacity: dict[_Node, dict[_Node, int]], source: _Node, sink: _Node) -> int:
    """Edmonds and Karp, 1972; the graphs here have tens of nodes."""
    flow = 0
    for node, edges in list(capacity.items()):
        for target in list(edges):
            capacity[target].setdefault(node, 0)
    while (path := _augmenting_path(capacity, source, sink)) is not None:
        step = min(capacity[a][b] for a, b in path)
        for a, b in path:
            capacity[a][b] -= step
            capacity[b][a] += step
        flow += step
    return flow


def _augmenting_path(
    capacity: Mapping[_Node, Mapping[_Node, int]], source: _Node, sink: _Node
) -> list[tuple[_Node, _Node]] | None:
    parents: dict[_Node, _Node] = {source: source}
    frontier = [source]
    while frontier:
        reached: list[_Node] = []
        for node in frontier:
            for target, room in capacity[node].items():
                if room > 0 and target not in parents:
                    parents[target] = node
                    reached.append(target)
        if sink in parents:
            path: list[tuple[_Node, _Node]] = []
            node = sink
            while node != source:
                path.append((parents[node], node))
                node = parents[node]
            return path
        frontier = reached
    return None
