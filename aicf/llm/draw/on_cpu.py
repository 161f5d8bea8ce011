"""The kernel of `aicf.draw` for processors, which Numba compiles.

The least weight that is kept is found bit by bit, without sorting: each bit is one pass over the weights that the
compiler turns into vector code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_CHUNK = 512
"""Weights that are passed over by their sum."""
_BITS = 31
"""Of a weight."""


@njit(inline="always")
def _count_from(weights: Any, start: Any, stop: Any, least: Any) -> Any:
    """How many weights of a range are at least `least`."""
    found = np.int64(0)
    for index in range(start, stop):
        if weights[index] >= least:
            found += 1
    return found


@njit(inline="always")
def _sum_from(weights: Any, start: Any, stop: Any, least: Any) -> Any:
    """The sum of the weights of a range that are at least `least`."""
    total = np.int64(0)
    for index in range(start, stop):
        if weights[index] >= least:
            total += np.int64(weights[index])
    return total


@njit(inline="always")
def _least_of_top_k(weights: Any, start: Any, stop: Any, top_k: Any) -> Any:
    """A number that just `top_k` weights reach; the weight at position `top_k` if others are equal to it."""
    least = np.int32(0)
    for bit in range(_BITS - 1, -1, -1):
        trial = np.int32(least | np.int32(1 << bit))
        found = _count_from(weights, start, stop, trial)
        if found >= top_k:
            least = trial
        if found == top_k:
            break
    return max(least, np.int32(1))


@njit(inline="always")
def _least_of_top_p(weights: Any, start: Any, stop: Any, floor: Any, needed: Any) -> Any:
    """The least weight of the largest ones of at least `floor` that have the sum `needed`, or a number below it that no
    more weights reach."""
    least = np.int32(0)
    reached, above = _sum_from(weights, start, stop, floor), np.int64(0)
    for bit in range(_BITS - 1, -1, -1):
        trial = np.int32(least | np.int32(1 << bit))
        found = _sum_from(weights, start, stop, max(trial, floor))
        if found >= needed:
            least, reached = trial, found
        else:
            above = found
        if reached - above < 2 * np.int64(least):  # from `least` to what does not suffice there is one weight
            break
    return max(least, floor)


@njit(inline="always")
def _largest(weights: Any, start: Any, stop: Any) -> Any:
    top = np.int32(0)
    for index in range(start, stop):
        top = max(top, weights[index])
    return top


@njit(inline="always")
def _index_after(weights: Any, start: Any, stop: Any, least: Any, before: Any) -> Any:
    """The first index of a range up to which its kept weights have a sum above `before`; -1 if there is none."""
    passed = np.int64(0)
    for first in range(start, stop, _CHUNK):
        last = min(first + _CHUNK, stop)
        inside = _sum_from(weights, first, last, least)
        if passed + inside > before:
            for index in range(first, last):
                if weights[index] >= least:
                    passed += np.int64(weights[index])
                    if passed > before:
                        return index
        passed += inside
    return np.int64(-1)


def draw_on_cpu(
    weights: Any, uniform: Any, top_k: Any, top_p: Any, min_p: Any, drawn: Any, rows: Any, count: Any
) -> None:
    """See `aicf.llm.draw.meaning.draw`; pointers, then the numbers of rows and of weights in a row."""
    for row in range(rows):
        start, stop, least = row * count, (row + 1) * count, np.int32(1)
        if 0 < top_k[row] < count:
            least = _least_of_top_k(weights, start, stop, top_k[row])
        if top_p[row] < 1:
            total = _sum_from(weights, start, stop, least)
            needed = max(np.float64(top_p[row]) * total, 1.0)
            least = _least_of_top_p(weights, start, stop, least, needed)
        if min_p[row] > 0:
            largest = _largest(weights, start, stop)
            least = max(least, np.int32(np.ceil(np.float64(min_p[row]) * np.float64(largest))))
        total = _sum_from(weights, start, stop, least)
        found = _index_after(weights, start, stop, least, np.int64(uniform[row] * np.float64(total)))
        drawn[row] = found - start if found >= 0 else np.int64(-1)
