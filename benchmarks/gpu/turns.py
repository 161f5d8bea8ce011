"""Times of rivals on a GPU, taken in turns: a sample of each in every round, so that all have the same clock and heat.

A sample is many calls back to back, the device idle before and after. Large products so run at the power limit of the
board; *paused* samples are followed by several times their length of nothing, and show the kernels without that limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

Run = Callable[[], object]

SAMPLE_SECONDS = 4e-3
ROUNDS = 25
PAUSES = 5
"""Idle time after a paused sample, in samples."""
HOST_CALLS = 200


def in_turns(rivals: Mapping[str, Run], synchronize: Run, pauses: int = 0) -> dict[str, float]:
    """Median microseconds of one call of each; after each sample the device idles for `pauses` times its length."""
    counts = {name: _calls(run, synchronize) for name, run in rivals.items()}
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, run in rivals.items():
            us = _sample(run, counts[name], synchronize)
            samples[name].append(us)
            time.sleep(pauses * us * counts[name] / 1e6)
    return {name: round(median(values), 2) for name, values in samples.items()}


def host_time(run: Run, synchronize: Run) -> float:
    """Median microseconds that one call keeps the caller, the device idle before."""
    spent: list[float] = []
    for _ in range(HOST_CALLS):
        synchronize()
        started = time.perf_counter_ns()
        run()
        spent.append((time.perf_counter_ns() - started) / 1e3)
    return round(median(spent), 2)


def _calls(run: Run, synchronize: Run) -> int:
    """So many that a sample takes a few milliseconds."""
    _sample(run, 3, synchronize)
    return max(5, round(SAMPLE_SECONDS * 1e6 / _sample(run, 10, synchronize)))


def _sample(run: Run, count: int, synchronize: Run) -> float:
    """Microseconds of one of `count` calls."""
    synchronize()
    started = time.perf_counter_ns()
    for _ in range(count):
        run()
    synchronize()
    return (time.perf_counter_ns() - started) / count / 1e3
