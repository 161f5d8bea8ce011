"""Orders by reuse: which order of instructions finds most of what they read still in the cache.

The cache is a model: it holds whole buffers, and what was not touched for longest leaves it first. What a program finds
there at its start counts as memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heappop, heappush

MOST_READERS = 32
"""A buffer with more readers, such as a weight of all branches, gives none of them a lead: whichever comes next reads
it, and to keep count of all of them at each step would take a time that grows with their square."""


@dataclass(frozen=True)
class Step:
    """What one instruction touches: bytes of each buffer that it reads, and of each that it writes."""

    reads: Mapping[Hashable, int]
    writes: Mapping[Hashable, int]


@dataclass
class Cache:
    """Which buffers are in a cache of `capacity` bytes, the one touched last at the end."""

    capacity: float
    held: OrderedDict[Hashable, int] = field(default_factory=OrderedDict[Hashable, int])
    used: int = 0

    def touch(self, buffer: Hashable, size: int) -> list[Hashable]:
        """Reads or writes all of `buffer`; gives back what had to leave, which is the buffer too if it is too large."""
        self.used += size - self.held.pop(buffer, 0)
        self.held[buffer] = size
        gone: list[Hashable] = []
        while self.used > self.capacity:
            other, its_size = self.held.popitem(last=False)
            self.used -= its_size
            gone.append(other)
        return gone


def memory_bytes(steps: Sequence[Step], capacity: float) -> int:
    """Bytes that reads bring from memory where `steps` run in this order."""
    cache, missed = Cache(capacity), 0
    for step in steps:
        for buffer, size in step.reads.items():
            missed += 0 if buffer in cache.held else size
            cache.touch(buffer, size)
        for buffer, size in step.writes.items():
            cache.touch(buffer, size)
    return missed


def reuse_order(steps: Sequence[Step], after: Sequence[AbstractSet[int]], capacity: float) -> list[int]:
    """The positions of `steps` in another order: next is, of those that may run, the one with the most read bytes in
    the cache; of several, the one that may run since the latest, or else the first.

    Both follow from what ran before alone, not from positions in the text: so the order of a program that is written in
    the order found is that order.

    Args:
        steps: What each instruction touches.
        after: The earlier positions each has to wait for.
        capacity: Bytes of the cache.
    """
    return _Chooser(steps, after, capacity).run()


class _Chooser:
    """List scheduling. `queue` has an entry for each lead that a ready step has had; only the last one counts."""

    def __init__(self, steps: Sequence[Step], after: Sequence[AbstractSet[int]], capacity: float) -> None:
        self.steps = steps
        self.cache = Cache(capacity)
        self.lead = [0] * len(steps)
        self.missing = [len(sources) for sources in after]
        self.done = [False] * len(steps)
        self.followers: list[list[int]] = [[] for _ in steps]
        for position, sources in enumerate(after):
            for source in sources:
                self.followers[source].append(position)
        self.readers = _readers(steps)
        self.ready_since = [0] * len(steps)
        self.queue: list[tuple[int, int, int]] = []

    def run(self) -> list[int]:
        for position, count in enumerate(self.missing):
            if not count:
                self._offer(position)
        order: list[int] = []
        while self.queue:
            lead, _, position = heappop(self.queue)
            if self.done[position] or -lead != self.lead[position]:
                continue
            self.done[position] = True
            order.append(position)
            self._touch_all(self.steps[position])
            for follower in self.followers[position]:
                self.missing[follower] -= 1
                if not self.missing[follower]:
                    self.ready_since[follower] = len(order)
                    self._offer(follower)
        return order

    def _offer(self, position: int) -> None:
        heappush(self.queue, (-self.lead[position], -self.ready_since[position], position))

    def _touch_all(self, step: Step) -> None:
        for touched in (step.reads, step.writes):
            for buffer, size in touched.items():
                came = buffer not in self.cache.held
                gone = self.cache.touch(buffer, size)
                if came:
                    self._shift(buffer, 1)
                for other in gone:
                    self._shift(other, -1)

    def _shift(self, buffer: Hashable, sign: int) -> None:
        """The lead of those that read `buffer`, where it has come to the cache (1) or left it (-1)."""
        for position in self.readers.get(buffer, ()):
            if self.done[position]:
                continue
            self.lead[position] += sign * self.steps[position].reads[buffer]
            if not self.missing[position]:
                self._offer(position)


def _readers(steps: Sequence[Step]) -> dict[Hashable, list[int]]:
    readers: dict[Hashable, list[int]] = {}
    for position, step in enumerate(steps):
        for buffer in step.reads:
            readers.setdefault(buffer, []).append(position)
    return {buffer: positions for buffer, positions in readers.items() if len(positions) <= MOST_READERS}
