"""The check `slower`: whether a candidate takes as long as the bad program, or as little as the good one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import median

from aicf.bisection.checks import Verdict
from aicf.bisection.delta_debugging import Outcome
from aicf.bisection.race import MOST_ROUNDS, Runner, sign
from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch
from aicf.inspection.random_inputs import random_inputs
from aicf.runtime.tensors import Array

LEAST = 1.03
"""How many times as long the bad program takes at least: what is smaller is another day another."""


@dataclass(frozen=True)
class _Track:
    """What is timed: one program of both executables, by its sizes, on fixed inputs."""

    program: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]
    good: Runner
    bad: Runner
    factor: float


class Slower:
    """Times replays of a candidate next to the good and the bad program. If these have several programs, for several
    sizes, it times the one that got slower most.

    A candidate is bad if it is nearer to the bad program than to the good one, by the geometric mean of their times,
    and by more than the noise; good if it is nearer to the good one; neither if that is not clear after 60 rounds.

    Args:
        seed: Of the inputs.
    """

    effect = "the program is slower"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._track: _Track | None = None

    @property
    def text(self) -> str:
        """See `Check`."""
        return f"slower, seed {self._seed}"

    def open(self, good: CompiledModel, bad: CompiledModel) -> Verdict:
        """See `Check`."""
        slowest: tuple[_Track, list[float]] | None = None
        unclear: list[str] = []
        for row in good.plan.rows:
            inputs = random_inputs(good.plan.by_name[row.program], self._seed)
            sizes = dict(zip(good.plan.dims, row.sizes, strict=True))
            runners = Runner(good, sizes, inputs), Runner(bad, sizes, inputs)
            ratios, clear = _rounds(*runners)
            factor = exp(median(ratios))
            unclear.append(f"@{row.program}: {factor:.2f} x in {len(ratios)} rounds")
            if clear > 0 and (slowest is None or factor > slowest[0].factor):
                slowest = _Track(row.program, sizes, inputs, *runners, factor), ratios
        if slowest is None:
            raise InputMismatch(
                f"the bad program is not slower than the good one by more than the noise and {LEAST - 1:.0%} "
                f"({', '.join(unclear)}); on a machine with less other load the difference may be clear"
            )
        self._track, ratios = slowest
        return Verdict(Outcome.BAD, _detail(self._track, self._track.factor, len(ratios)))

    def verdict(self, candidate: CompiledModel) -> Verdict:
        """See `Check`."""
        track = self._track
        assert track is not None, "open comes first"
        runner = Runner(candidate, track.sizes, track.inputs)
        above: list[float] = []
        ratios: list[float] = []
        clear = 0
        while len(above) < MOST_ROUNDS and not clear:
            good, tried, bad = _times((track.good, runner, track.bad), len(above))
            ratios.append(log(tried / good))
            above.append(ratios[-1] - log(bad / good) / 2)
            clear = sign(above)
        outcome = {1: Outcome.BAD, -1: Outcome.GOOD, 0: Outcome.UNRESOLVED}[clear]
        return Verdict(outcome, _detail(track, exp(median(ratios)), len(ratios)))


def _detail(track: _Track, factor: float, rounds: int) -> str:
    return f"{factor:.2f} x the time of the good program in @{track.program}, {rounds} rounds"


def _rounds(good: Runner, bad: Runner) -> tuple[list[float], int]:
    """The logarithms of the time of the bad program divided by that of the good one, until it is clear which of them
    takes longer, and the sign of that."""
    ratios: list[float] = []
    clear = 0
    while len(ratios) < MOST_ROUNDS and not clear:
        a, b = _times((good, bad), len(ratios))
        ratios.append(log(b / a))
        clear = sign([ratio - log(LEAST) for ratio in ratios])
    return ratios, clear


def _times(runners: tuple[Runner, ...], number: int) -> list[float]:
    """Seconds of each in one round; every other round goes backwards, so that none gains by its place."""
    if number % 2 == 0:
        return [runner.seconds() for runner in runners]
    return [runner.seconds() for runner in reversed(runners)][::-1]
