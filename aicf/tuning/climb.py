"""Which variant a search measures next: a local search from the best variant, and from the next best ones.

It knows no device and no clock. What it does follows from the space and from the times that it was told, in whatever
run they were measured, so a search that was cut goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aicf.tuning.space import Space

RESTARTS = 3
"""Variants after the best whose neighbours are measured as well: the best may be the top of a small hill."""
NEAR = 1.5
"""The best variant of another kernel is such a one, if it takes at most so many times as long as the best."""

CLOSE = 1.05
"""A variant is compared with the best if it takes at most so many times as long: the clock may have changed since."""


class Climb:
    """A search in a space.

    Args:
        space: The variants.
        times: Microseconds of those that are known.
        failed: Those that cannot run.
    """

    def __init__(self, space: Space, times: Mapping[int, float], failed: set[int]) -> None:
        self.space = space
        self.times = dict(times)
        self.failed = set(failed)
        self.best = self.fastest()
        """The variant that no other was found better than; None if nothing is known."""

    def wishes(self) -> Iterator[int]:
        """The variants to measure, in order, as far as they follow from what is known; nothing if the search is at its
        end."""
        seen = {*self.times, *self.failed}
        for number in self._candidates():
            if number not in seen:
                seen.add(number)
                yield number

    def _candidates(self) -> Iterator[int]:
        yield from self.space.starts
        for point in self.points():
            yield from self.space.neighbours(point)

    def points(self) -> list[int]:
        """The variants whose neighbours are measured, the best first; as long as nothing is known, the first start."""
        if self.best is None:
            return list(self.space.starts[:1])
        others = sorted(self.times.keys() - {self.best}, key=lambda number: (self.times[number], number))
        chosen = [self.best, *others[:RESTARTS]]
        kernels = {self.space.kernels[number] for number in chosen}
        for number in others[RESTARTS:]:
            kernel = self.space.kernels[number]
            if kernel not in kernels and self.times[number] <= NEAR * self.times[self.best]:
                kernels.add(kernel)
                chosen.append(number)
        return chosen

    def learn(self, number: int, us: float | None) -> bool:
        """Takes the time of a variant, None if it failed; whether it has to be compared with the best one."""
        if us is None:
            self.failed.add(number)
            return False
        self.times[number] = us
        if self.best is None:
            self.best = number
        return self.best != number and us < CLOSE * self.times[self.best]

    def drop(self, number: int) -> None:
        """Takes that a variant fails which had a time."""
        self.times.pop(number, None)
        self.failed.add(number)
        if self.best == number:
            self.best = self.fastest()

    def fastest(self) -> int | None:
        """The variant with the lowest time, None if nothing is known."""
        return min(self.times, key=lambda number: (self.times[number], number), default=None)
