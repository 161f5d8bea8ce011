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
def _count_from(weights: Any, count: Any, least: Any) -> Any:
    """How many weights are at least `least`."""
    found = np.int64(0)
    for index in range(count):
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
def _least_of_top_k(weights: Any, count: Any, top_k: Any) -> Any:
    """A number that just `top_k` weights reach; the weight at position `top_k` if others are equal to it."""
    least = np.int32(0)
    for bit in range(_BITS - 1, -1, -1):
        trial = np.int32(least | np.int32(1 << bit))
        found = _count_from(weights, count, trial)
        if found >= top_k:
            least = trial
        if found == top_k:
            break
    return max(least, np.int32(1))


@njit(inline="always")
def _least_of_top_p(weights: Any, count: Any, floor: Any, needed: Any) -> Any:
    """The least weight of the largest ones of at least `floor` that have the sum `needed`, or a number below it that no
    more weights reach."""
    least = np.int32(0)
    reached, above = _sum_from(weights, 0, count, floor), np.int64(0)
    for bit in range(_BITS - 1, -1, -1):
        trial = np.int32(least | np.int32(1 << bit))
        found = _sum_from(weights, 0, count, max(trial, floor))
        if found >= needed:
            least, reached = trial, found
        else:
            above = found
        if reached - above < 2 * np.int64(least):  # from `least` to what does not suffice there is one weight
            break
    return max(least, floor)


@njit(inline="always")
def _largest(weights: Any, count: Any) -> Any:
    top = np.int32(0)
    for index in range(count):
        top = max(top, weights[index])
    return top


@njit(inline="always")
def _index_after(weights: Any, count: Any, least: Any, before: Any) -> Any:
    """The first index up to which the kept weights have a sum above `before`."""
    passed = np.int64(0)
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        inside = _sum_from(weights, start, stop, least)
        if passed + inside > before:
            for index in range(start, stop):
                if weights[index] >= least:
                    passed += np.int64(weights[index])
                    if passed > before:
                        return index
        passed += inside
    return np.int64(-1)


def draw_on_cpu(
    weights: Any, uniform: Any, top_k: Any, top_p: Any, min_p: Any, drawn: Any, count: Any
) -> None:
    """See `aicf.llm.draw.meaning.draw`; pointers, then the number of weights."""
    least = np.int32(1)
    if 0 < top_k[0] < count:
        least = _least_of_top_k(weights, count, top_k[0])
    if top_p[0] < 1:
        total = _sum_from(weights, 0, count, least)
        least = _least_of_top_p(weights, count, least, max(np.float64(top_p[0]) * total, 1.0))
    if min_p[0] > 0:
        largest = _largest(weights, count)
        least = max(least, np.int32(np.ceil(np.float64(min_p[0]) * np.float64(largest))))
    total = _sum_from(weights, 0, count, least)
    drawn[0] = _index_after(weights, count, least, np.int64(uniform[0] * np.float64(total)))
