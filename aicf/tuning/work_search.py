"""The search of one piece of work, step by step, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from aicf.policies.tuning_table import Failure, Row
from aicf.tuning.climb import Climb
from aicf.tuning.contest import LEAST, Contest
from aicf.tuning.searched_works import SearchedWork
from aicf.tuning.trials import Trials


@dataclass(frozen=True)
class Standing:
    """How far the search of a piece of work is.

    Args:
        name: Id of its first group.
        groups: How many groups do this work.
        untuned_us, best_us: Microseconds of what runs without a table, and of the best; None if they are not known.
        best: The best, kernel and variant; empty if nothing is known.
        tried: Variants that are known, also those of earlier runs.
        failed: Those of them that do not run.
        variants: How many there are.
    """

    name: str
    groups: int
    untuned_us: float | None
    best_us: float | None
    best: str
    tried: int
    failed: int
    variants: int


@dataclass(frozen=True)
class Outcome:
    """What the search found for a piece of work.

    Args:
        standing: At its end.
        gain: How many times as fast as the untuned choice the best is, both timed in turns; 1 if it is the untuned
            choice, None if there was no time to compare them or the untuned choice does not run.
        noise: How far single rounds of that comparison are apart.
        is_done: Whether no neighbour is better; else the time was over.
    """

    standing: Standing
    gain: float | None
    noise: float
    is_done: bool

    @property
    def is_better(self) -> bool:
        """Whether the best is faster than the untuned choice by more than the noise."""
        return self.gain is not None and self.gain - 1 > self.noise


COMPARISONS = 6
"""Most comparisons after the last step: where the clock of the device changes all the time, there is no end of them."""

REFRESH = 8
"""Steps after which the best is timed again: a time that was taken while the clock was high would win against all."""


class WorkSearch:
    """The search of a piece of work, which goes on from what the table knows."""

    def __init__(self, work: SearchedWork, trials: Trials) -> None:
        self._work, self._trials = work, trials
        known = {number: trials.known(number) for number in range(len(work.candidates))}
        times = {number: trials.us(row) for number, row in known.items() if isinstance(row, Row)}
        failed = {number for number, failure in known.items() if isinstance(failure, Failure)}
        self._climb = Climb(work.space, times, failed)
        self._compared: tuple[int, Contest] | None = None
        self._comparisons_left = COMPARISONS
        self._steps_since = 0
        self.step_s = 0.0
        """Seconds of a step, of which the last ones count most."""

    @property
    def us(self) -> float:
        """Predicted microseconds of all groups that do this work."""
        return self._work.us

    @property
    def is_done(self) -> bool:
        """Whether no neighbour is left to measure."""
        return next(self._climb.wishes(), None) is None

    @property
    def is_open(self) -> bool:
        """Whether the best still has to be compared with another variant, or timed again, see `compare`."""
        return self._steps_since > 0 or self._opponent() is not None

    def wishes(self) -> Iterator[int]:
        """What it would measure next, by the compiler's numbers."""
        return (self._work.first + number for number in self._climb.wishes())

    def step(self, others: Iterable[int]) -> None:
        """Measures the next variant, and compares it with the best if it looks better.

        Args:
            others: What may be compiled meanwhile, by the compiler's numbers.

        Raises:
            BackendUnavailable, CaptureError: none can be compiled.
        """
        self._comparisons_left = COMPARISONS
        self._steps_since += 1
        if self._steps_since >= REFRESH:
            self._refresh()
        wishes = self._climb.wishes()
        if (number := next(wishes, None)) is None:
            return  # the best that was timed again does not run any more
        then = chain((self._work.first + wish for wish in wishes), others)
        if self._climb.learn(number, self._trials.measure(number, then)):
            best = self._climb.best
            assert best is not None, "something else is better"
            found = self._contest(best, number, to_the_end=False)
            if found is not None and found.is_won:
                self._climb.best = number

    def compare(self) -> None:
        """Times the best once more after steps. Then compares it with what has a better time in the table, which was
        taken when the clock was another, so that the table says the same as the search; else with the untuned choice.
        If the other one is not slower, it is the best from now on."""
        if self._steps_since:
            self._refresh()
            return
        best, other = self._climb.best, self._opponent()
        assert best is not None and other is not None, "only where it is open"
        self._comparisons_left -= 1
        found = self._contest(other, best, to_the_end=True)
        if found is not None and found.gain < 1:
            self._climb.best = other

    def _refresh(self) -> None:
        """Times the best once more."""
        self._steps_since = 0
        if (best := self._climb.best) is not None:
            us = self._trials.measure(best, ())
            if us is None:
                self._climb.drop(best)
            else:
                self._climb.times[best] = us

    def _opponent(self) -> int | None:
        """What the best still has to be compared with."""
        climb, untuned = self._climb, self._work.untuned
        if climb.best is None or not self._comparisons_left:
            return None
        if (fastest := climb.fastest()) != climb.best:
            return fastest
        is_compared = self._compared is not None and self._compared[0] == climb.best
        return untuned if untuned in climb.times and untuned != climb.best and not is_compared else None

    def forget(self) -> None:
        """Frees code, which is made again if the search goes on."""
        self._trials.forget()

    def standing(self) -> Standing:
        """How far it is."""
        climb, work = self._climb, self._work
        best = None if climb.best is None else self._trials.known(climb.best)
        return Standing(
            work.name,
            work.groups,
            climb.times.get(work.untuned),
            None if climb.best is None else climb.times[climb.best],
            "" if best is None else best.label,
            len(climb.times) + len(climb.failed),
            len(climb.failed),
            len(work.candidates),
        )

    def outcome(self) -> Outcome:
        """What became of it."""
        best, untuned = self._climb.best, self._work.untuned
        gain, noise = (1.0 if best is not None and best == untuned else None), LEAST
        if gain is None and self._compared is not None and self._compared[0] == best:
            gain, noise = self._compared[1].gain, self._compared[1].noise
        return Outcome(self.standing(), gain, noise, self.is_done)

    def _contest(self, champion: int, challenger: int, to_the_end: bool) -> Contest | None:
        """Times two variants in turns; None if one of them failed."""
        found = self._trials.contest(champion, challenger, to_the_end)
        if isinstance(found, int):
            self._climb.drop(found)
            return None
        self._steps_since = 0  # both have times of now
        if found.is_whole and champion == self._work.untuned:
            self._compared = challenger, found
        elif found.is_whole and challenger == self._work.untuned:
            self._compared = champion, found.reversed()
        for number in (champion, challenger):
            known = self._trials.known(number)
            if isinstance(known, Row):
                self._climb.times[number] = self._trials.us(known)
        return found
