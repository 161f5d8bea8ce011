"""What the training benchmark asks of all that train: the same losses step by step, then times taken in turns.

Every sample begins with the first step's parameters: a batch that is learned by heart has gradients that are no
numbers a processor is fast with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from works import Array, Workload, random_batch

STEPS = 20
"""Whose losses are compared, each step with a batch of its own."""
SAMPLE_SECONDS = 4e-3
ROUNDS = 25


@dataclass(frozen=True)
class Contestant:
    """Something that trains a work.

    Args:
        restart: Puts everything as before the first step.
        feed: Gives the batch that all steps to come learn: x f32, y i64.
        step: Asks for a step.
        wait: Until all steps are done.
        loss: Of the last step.
    """

    restart: Callable[[], None]
    feed: Callable[[Array, Array], None]
    step: Callable[[], object]
    wait: Callable[[], object]
    loss: Callable[[], float]


def losses_of(contestant: Contestant, work: Workload) -> list[float]:
    """Of the first steps, f32 or better."""
    contestant.restart()
    losses: list[float] = []
    for number in range(STEPS):
        contestant.feed(*random_batch(work, number))
        contestant.step()
        contestant.wait()
        losses.append(contestant.loss())
    return losses


def error_of(losses: Sequence[float], exact: Sequence[float]) -> float:
    """The largest distance over the mean loss; NaN if a loss is."""
    distance = np.max(np.abs(np.subtract(losses, exact)))
    return float(f"{distance / np.mean(exact):.3e}")


def in_turns(contestants: Mapping[str, Contestant]) -> dict[str, float]:
    """Median microseconds of a step of each, a sample of each in every round."""
    counts = {name: _steps_of_a_sample(each) for name, each in contestants.items()}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, each in contestants.items():
            samples[name].append(_sample(each, counts[name]))
    return {name: round(median(values), 2) for name, values in samples.items()}


def _steps_of_a_sample(contestant: Contestant) -> int:
    _sample(contestant, 3)
    return max(5, round(SAMPLE_SECONDS * 1e6 / _sample(contestant, 10)))


def _sample(contestant: Contestant, count: int) -> float:
    """Microseconds of one of `count` steps."""
    contestant.restart()
    contestant.step()
    contestant.wait()
    started = time.perf_counter_ns()
    for _ in range(count):
        contestant.step()
    contestant.wait()
    return (time.perf_counter_ns() - started) / count / 1e3
