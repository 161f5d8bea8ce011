"""The search: which piece of work gets how much time, and what became of each.

The budget is split by the share of the program's predicted time, the largest share first; what one does not use is for
those that come after, and in the end for those that were cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain

from aicf.tuning.measure import Device
from aicf.tuning.searched_works import SearchedWork
from aicf.tuning.trials import Trials
from aicf.tuning.work_search import Outcome, Standing, WorkSearch

Clock = Callable[[], float]
"""Seconds since some moment."""

Report = Callable[[Standing, float], None]
"""Is told how far the current piece of work is, and how many seconds are left."""

RESERVE = 4
"""Steps for which there has to be time: the next one, and comparisons after it."""


class Search:
    """A search over all pieces of work.

    Args:
        works: The pieces of work, the largest share first, with what tries their variants.
        device: What times them.
        seconds: The whole budget, which begins now. What has begun when it ends is finished.
        report: Is told of each step.
        clock: Tells the time.
    """

    def __init__(
        self,
        works: Sequence[tuple[SearchedWork, Trials]],
        device: Device,
        seconds: float,
        report: Report,
        clock: Clock = time.monotonic,
    ) -> None:
        self._device, self._report, self._clock = device, report, clock
        self._deadline = clock() + seconds
        self._works = [WorkSearch(work, trials) for work, trials in works]

    def run(self) -> list[Outcome]:
        """Searches until all are done, the time is over or the device is lost; gives the outcomes, the largest share
        first."""
        pending: list[WorkSearch] = self._works
        has_moved = True
        while pending and has_moved:
            has_moved = False
            for place, work in enumerate(pending):
                left = self._deadline - self._clock()
                if left <= 0 or self._device.lost:
                    break
                share = work.us / (sum(other.us for other in pending[place:]) or 1.0)
                has_moved |= self._search(work, pending[place + 1 :], self._clock() + left * share)
            pending = [work for work in pending if not work.is_done]
            has_moved &= self._clock() < self._deadline and not self._device.lost
        return [work.outcome() for work in self._works]

    def _search(self, work: WorkSearch, others: Sequence[WorkSearch], end: float) -> bool:
        """Searches a piece of work until its time is over; whether there was anything to do."""
        has_moved = False
        work.step_s /= 2  # the first steps compile many variants, and would keep later ones from being tried
        while self._may_step(work, end):
            self._timed(work, lambda: work.step(chain.from_iterable(other.wishes() for other in others)))
            has_moved = True
            if work.is_done:
                self._compare(work)  # there are new neighbours if another variant turns out to be the best
        has_moved |= self._compare(work)
        work.forget()
        return has_moved

    def _may_step(self, work: WorkSearch, end: float) -> bool:
        """Whether there is a next step, and time for it and for comparisons after it."""
        now = self._clock()
        is_over = now >= self._deadline or (work.step_s > 0 and now + RESERVE * work.step_s > end)
        return not (work.is_done or is_over or self._device.lost)

    def _compare(self, work: WorkSearch) -> bool:
        """Holds the comparisons that the best still needs, as far as there is time; whether there were any."""
        has_moved = False
        while work.is_open and self._clock() + work.step_s <= self._deadline and not self._device.lost:
            self._timed(work, work.compare)
            has_moved = True
        return has_moved

    def _timed(self, work: WorkSearch, step: Callable[[], None]) -> None:
        began = self._clock()
        step()
        now = self._clock()
        work.step_s = (work.step_s + now - began) / 2
        self._report(work.standing(), max(0.0, self._deadline - now))
