"""Two executables of one model timed in turns: how many times as long the second takes, and whether that is clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, log
from statistics import median

from aicf.bisection.race import MOST_ROUNDS, Runner, sign
from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch
from aicf.inspection.random_inputs import random_inputs

LEAST = 0.01
"""A difference below this part is none that matters."""
_OUTSIDE = 0.01
"""How likely the true median ratio is outside of the interval that is told."""


@dataclass(frozen=True)
class ComparedTimes:
    """One program of both, by its sizes.

    Args:
        program: Its name.
        first_us, second_us: Median microseconds of a replay.
        ratio: Of the second one's time to the first one's: the median over the rounds.
        low, high: What the true median lies between, with 99 % certainty.
        rounds: How often both were timed.
        verdict: `faster` or `slower` is the second one, or `same` if that is not clear, or less than 1 %.
    """

    program: str
    first_us: float
    second_us: float
    ratio: float
    low: float
    high: float
    rounds: int
    verdict: str

    def __str__(self) -> str:
        told = {"faster": "the second is faster", "slower": "the second is slower"}
        return (
            f"@{self.program}: {self.first_us:.2f} us and {self.second_us:.2f} us, "
            f"{told.get(self.verdict, 'no difference is clear')}: {self.ratio:.3f} x the time "
            f"({self.low:.3f} to {self.high:.3f} in {self.rounds} rounds)"
        )


def compare_times(first: CompiledModel, second: CompiledModel, seed: int = 0) -> tuple[ComparedTimes, ...]:
    """Times the programs of two executables in turns, on the same random inputs.

    A round times both; every other one begins with the second. Rounds go on until the difference is clear, or there are
    60 of them.

    Raises:
        InputMismatch: they are not compiled for the same sizes, or take other inputs.
    """
    ours, theirs = ({row.sizes: row.program for row in each.plan.rows} for each in (first, second))
    if list(ours) != list(theirs) or first.plan.dims != second.plan.dims:
        raise InputMismatch("the two programs are compiled for other sizes; compile both with the same dims")
    if [str(spec) for spec in first.inputs] != [str(spec) for spec in second.inputs]:
        raise InputMismatch("the two programs take other inputs; compare programs of one model")
    return tuple(
        _compared(first, second, dict(zip(first.plan.dims, sizes, strict=True)), name, seed)
        for sizes, name in ours.items()
    )


def _compared(
    first: CompiledModel, second: CompiledModel, sizes: Mapping[str, int], name: str, seed: int
) -> ComparedTimes:
    inputs = random_inputs(first.plan.by_name[name], seed)
    runners = Runner(first, sizes, inputs), Runner(second, sizes, inputs)
    times: list[tuple[float, float]] = []
    clear = 0
    while len(times) < MOST_ROUNDS and not clear:
        times.append(_round(*runners, is_reversed=len(times) % 2 == 1))
        ratios = [log(b / a) for a, b in times]
        clear = sign([ratio - log(1 + LEAST) for ratio in ratios])
        clear = max(clear, 0) or min(sign([ratio + log(1 + LEAST) for ratio in ratios]), 0)
    ratios = sorted(b / a for a, b in times)
    low, high = _interval(ratios)
    return ComparedTimes(
        name,
        1e6 * median(a for a, _ in times),
        1e6 * median(b for _, b in times),
        exp(median(log(ratio) for ratio in ratios)),
        low,
        high,
        len(times),
        {1: "slower", -1: "faster", 0: "same"}[clear],
    )


def _round(first: Runner, second: Runner, *, is_reversed: bool) -> tuple[float, float]:
    if is_reversed:
        b = second.seconds()
        return first.seconds(), b
    return first.seconds(), second.seconds()


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """What the median of the distribution lies between, from sorted values: as many of them are outside at each end as
    chance allows."""
    count, outside, number = len(values), 0.0, 0
    while number < count // 2:
        outside += comb(count, number) / 2**count
        if 2 * outside > _OUTSIDE:
            break
        number += 1
    number = max(number - 1, 0)
    return values[number], values[count - 1 - number]
