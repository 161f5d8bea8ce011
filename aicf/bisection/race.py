"""Programs timed in turns, and whether the differences are more than noise.

Each round times every program, so that a clock that changes hits all of them. Of a few samples the shortest counts,
since other load only ever adds to a time. A verdict counts rounds instead of averaging times (the sign test): one slow
round is one round, however slow it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import comb

from aicf.compilation.compiled import CompiledModel
from aicf.runtime.tensors import Array

LEAST_ROUNDS, MOST_ROUNDS = 11, 60
SURE = 0.001
"""The most that a verdict may be by chance: 11 rounds of 11 are enough."""
SAMPLES = 5
"""Of a program in a round; the shortest counts."""
SAMPLE_S = 0.0005
"""The replays of a sample take at least so long, which clocks tell well."""
WARM_UP = 3


class Runner:
    """Replays of one program of an executable, on memory of its own and fixed inputs.

    Args:
        sizes: Of the symbolic dimensions: which program.
        inputs: By name.
    """

    def __init__(
        self, compiled: CompiledModel, sizes: Mapping[str, int], inputs: Mapping[str, Array]
    ) -> None:
        self._replayed = compiled.instantiate(**sizes)
        self._replayed.fill(inputs)
        seconds = min(self._time(1) for _ in range(WARM_UP))
        self._repeats = max(1, round(SAMPLE_S / max(seconds, 1e-9)))

    def seconds(self) -> float:
        """Of one replay, from its start to its end, in one round."""
        return min(self._time(self._repeats) for _ in range(SAMPLES)) / self._repeats

    def _time(self, repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            self._replayed.replay()
        self._replayed.synchronize()
        return time.perf_counter() - start


def sign(values: Sequence[float]) -> int:
    """1 if values are above 0 more often than chance allows, -1 if below, 0 if that is not clear."""
    above = sum(value > 0 for value in values)
    count = len(values)
    tail = sum(comb(count, k) for k in range(max(above, count - above), count + 1)) / 2**count
    if count < LEAST_ROUNDS or 2 * tail > SURE:
        return 0
    return 1 if 2 * above > count else -1
