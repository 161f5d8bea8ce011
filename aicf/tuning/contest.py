"""Whether one variant is faster than another: both are timed in turns, so that a clock that changes hits both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from aicf.tuning.measure import Samples

LEAST = 0.01
"""A smaller difference is no difference, however often it was found: another day it is another."""


@dataclass(frozen=True)
class Contest:
    """What was found.

    Args:
        ratios: Of each round, the time of the champion divided by that of the challenger.
        champion, challenger: The times of all rounds.
    """

    ratios: tuple[float, ...]
    champion: Samples
    challenger: Samples

    @property
    def is_whole(self) -> bool:
        """Whether all rounds were held."""
        return len(self.ratios) > 1

    def reversed(self) -> Contest:
        """The same with the challenger as the champion."""
        return Contest(tuple(1 / ratio for ratio in self.ratios), self.challenger, self.champion)

    @property
    def gain(self) -> float:
        """How many times as fast the challenger is: the median of the rounds."""
        return median(self.ratios)

    @property
    def noise(self) -> float:
        """How far the ratios of single rounds are apart, the distance between their quartiles, and `LEAST` at least."""
        if len(self.ratios) < 2:
            return LEAST
        first, _, third = quantiles(self.ratios, n=4, method="inclusive")
        return max(LEAST, third - first)

    @property
    def is_won(self) -> bool:
        """Whether the challenger is better by more than the noise."""
        return self.gain - 1 > self.noise


def contest(
    rounds: Iterable[tuple[Samples, Samples]], measurements: str, to_the_end: bool = False
) -> Contest:
    """Holds rounds of champion and challenger.

    Args:
        measurements: Which times count, `cold` or `warm`.
        to_the_end: Whether all rounds are held; else one that the challenger loses at once has a single round.

    Raises:
        AicfError: one of them cannot be timed.
    """
    ours: list[Samples] = []
    theirs: list[Samples] = []
    ratios: list[float] = []
    for champion, challenger in rounds:
        ours.append(champion)
        theirs.append(challenger)
        ratios.append(_us(champion, measurements) / _us(challenger, measurements))
        if ratios[0] <= 1 and not to_the_end:
            break
    return Contest(tuple(ratios), _together(ours), _together(theirs))


def _us(samples: Samples, measurements: str) -> float:
    return median(samples.warm if measurements == "warm" else samples.cold)


def _together(rounds: Sequence[Samples]) -> Samples:
    cold = [us for samples in rounds for us in samples.cold]
    warm = [us for samples in rounds for us in samples.warm]
    return Samples(cold, warm)
