"""The largest flow through a graph of two sides, whose edges take as much as their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class BipartiteFlow:
    """The largest flow from giving to taking nodes, as many of each, of which number i passes on at most `sizes[i]`.

    Edmonds and Karp, 1972, with sets of nodes as bits.

    Args:
        later: For each giving node the taking ones that it has an edge to, as bits.
    """

    def __init__(self, sizes: Sequence[int], later: Sequence[int]) -> None:
        self._later = later
        self._to_give, self._room = list(sizes), list(sizes)
        self._flow: list[dict[int, int]] = [{} for _ in sizes]
        """For each taking node, what comes from which giving node."""

    def most(self) -> int:
        """The largest flow."""
        total = 0
        while (path := self._augmenting_path()) is not None:
            total += self._augment(path)
        return total

    def _augmenting_path(self) -> list[int] | None:
        """A shortest path on which more can flow: giving and taking nodes in turn, backwards from the last one."""
        frontier = [node for node, left in enumerate(self._to_give) if left]
        giver_of: dict[int, int] = {}
        taker_of: dict[int, int | None] = dict.fromkeys(frontier)
        unseen = (1 << len(self._room)) - 1
        while frontier:
            reached: list[int] = []
            for giver in frontier:
                fresh = self._later[giver] & unseen
                unseen &= ~fresh
                for taker in _bits(fresh):
                    giver_of[taker] = giver
                    reached.append(taker)
            if (end := next((taker for taker in reached if self._room[taker]), None)) is not None:
                return _back(end, giver_of, taker_of)
            following: list[int] = []
            for taker in reached:
                for giver in self._flow[taker]:
                    if giver not in taker_of:
                        taker_of[giver] = taker
                        following.append(giver)
            frontier = following
        return None

    def _augment(self, path: Sequence[int]) -> int:
        """Lets as much flow along a path as it takes, and gives how much that is."""
        takers, givers = path[::2], path[1::2]
        returned = [self._flow[taker][giver] for giver, taker in zip(givers, takers[1:], strict=False)]
        step = min(self._room[takers[0]], self._to_give[givers[-1]], *returned)
        self._room[takers[0]] -= step
        self._to_give[givers[-1]] -= step
        for taker, giver in zip(takers, givers, strict=True):
            self._flow[taker][giver] = self._flow[taker].get(giver, 0) + step
        for giver, taker in zip(givers, takers[1:], strict=False):
            self._flow[taker][giver] -= step
            if not self._flow[taker][giver]:
                del self._flow[taker][giver]
        return step


def _back(end: int, giver_of: Mapping[int, int], taker_of: Mapping[int, int | None]) -> list[int]:
    """The path to a taking node, backwards."""
    path: list[int] = []
    taker: int | None = end
    while taker is not None:
        path += [taker, giver_of[taker]]
        taker = taker_of[path[-1]]
    return path


def _bits(number: int) -> Iterator[int]:
    """The numbers of the bits that are set, from the lowest."""
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1
