"""Poolings: every window walked element by element, in Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import NUMBERS, Array, Draw, OperandsAndAttrs, Row, values

SPATIAL = (1, 2, 3, 5, 9, 17)


def starts_of(
    whole: int, size: int, stride: int, dilation: int, low: int, high: int, ceil_mode: bool
) -> list[int]:
    """Where windows start, counted from the first element of the operand; in ceil mode as long as the one before leaves
    something, but for a last one after the operand."""
    extent, total = (size - 1) * dilation + 1, whole + low + high
    needed = stride if ceil_mode else 1
    coordinates = [at for at in range(0, total + stride, stride) if at + extent < total + needed]
    if ceil_mode and coordinates and coordinates[-1] >= whole + low:
        coordinates.pop()
    return [at - low for at in coordinates]


def _axis(draw: Draw, ceil_mode: bool, large: bool) -> tuple[int, ...]:
    """One dimension and windows along it, at least one of them."""
    whole = draw(st.sampled_from(SPATIAL if large else SPATIAL[:4]))
    size, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    dilation, low, high = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    if not starts_of(whole, size, stride, dilation, low, high, ceil_mode):
        size, dilation = min(size, whole), 1
    return whole, size, stride, dilation, low, high


def _pool(draw: Draw, dtype: str) -> OperandsAndAttrs:
    ceil_mode, rank = draw(st.booleans()), draw(st.integers(1, 3))
    axes = [_axis(draw, ceil_mode, rank == 1 or last) for last in [False] * (rank - 1) + [True]]
    leading = [draw(st.integers(1, 2)), draw(st.integers(1, 3))]
    x = values(draw, dtype, [*leading, *(axis[0] for axis in axes)])
    names = ("sizes", "strides", "dilations", "low", "high")
    lists = zip(*(axis[1:] for axis in axes), strict=True)
    return [x], {**{name: list(one) for name, one in zip(names, lists, strict=True)}, "ceil_mode": ceil_mode}


def _average(draw: Draw, dtype: str) -> OperandsAndAttrs:
    operands, attributes = _pool(draw, dtype)
    return operands, {**attributes, "count_include_pad": draw(st.booleans())}


def _norm(draw: Draw, dtype: str) -> OperandsAndAttrs:
    operands, attributes = _pool(draw, dtype)
    return operands, {**attributes, "p": draw(st.integers(1, 4))}


Coordinates = Sequence[tuple[int, ...]]


def _each(
    x: Array,
    combine: Callable[[Array, Coordinates], Any],
    dtype: Any,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    ceil_mode: bool,
) -> Array:
    """What ``combine`` makes of each plane and the indices of a window, some of which are beyond the plane."""
    whole = x.shape[2:]
    starts = [
        starts_of(*one, ceil_mode) for one in zip(whole, sizes, strides, dilations, low, high, strict=True)
    ]
    result = np.empty((*x.shape[:2], *map(len, starts)), dtype)
    for index in np.ndindex(*result.shape):
        along = [
            [start[at] + step * dilation for step in range(size)]
            for start, at, size, dilation in zip(starts, index[2:], sizes, dilations, strict=True)
        ]
        result[index] = combine(x[index[:2]], list(product(*along)))
    return result


def _found(plane: Array, coordinates: Coordinates) -> list[tuple[int, ...]]:
    """The indices that are in the plane."""
    return [at for at in coordinates if _is_in(plane, at)]


def _is_in(plane: Array, at: tuple[int, ...]) -> bool:
    return all(0 <= one < size for one, size in zip(at, plane.shape, strict=True))


def _largest(plane: Array, coordinates: Coordinates) -> Any:
    elements = [plane[at] for at in _found(plane, coordinates)]
    if any(value != value for value in elements):
        return math.nan
    return max(elements, default=-math.inf if plane.dtype.kind == "f" else np.iinfo(plane.dtype).min)


def _index_of_largest(plane: Array, coordinates: Coordinates) -> int:
    found = _found(plane, coordinates)
    if not found:
        return plane.size
    ranked = [(plane[at] != plane[at], 0 if plane[at] != plane[at] else plane[at]) for at in found]
    return int(np.ravel_multi_index(found[ranked.index(max(ranked))], plane.shape))


def _tap_of_largest(plane: Array, coordinates: Coordinates) -> int:
    found = {at: tap for tap, at in reversed(list(enumerate(coordinates))) if _is_in(plane, at)}
    ranked = {tap: (plane[at] != plane[at], np.nan_to_num(plane[at], nan=0.0)) for at, tap in found.items()}
    largest = [tap for tap, rank in ranked.items() if rank == max(ranked.values())]
    return min(largest, default=len(coordinates))


def _max_pool(x: Array, **windows: Any) -> Array:
    return _each(x, _largest, x.dtype, **windows)


def max_pool_indices(x: Array, **windows: Any) -> Array:
    return _each(x, _index_of_largest, np.int64, **windows)


def max_pool_taps(x: Array, **windows: Any) -> Array:
    return _each(x, _tap_of_largest, np.int8, **windows)


def _taps_and_grad(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Taps of any window, none of some, and of some that lie in the padding."""
    rank = draw(st.integers(1, 3))
    axes = [_axis(draw, False, rank == 1 or last) for last in [False] * (rank - 1) + [True]]
    counts = [len(starts_of(*axis, False)) for axis in axes]
    shape = [draw(st.integers(1, 2)), draw(st.integers(1, 3)), *counts]
    names = ("whole", "sizes", "strides", "dilations", "low")
    lists = zip(*(axis[:5] for axis in axes), strict=True)
    attributes = {name: list(one) for name, one in zip(names, lists, strict=True)}
    most = math.prod(attributes["sizes"])
    numbers = draw(st.lists(st.integers(0, most), min_size=math.prod(shape), max_size=math.prod(shape)))
    return [np.array(numbers, np.int8).reshape(shape), values(draw, dtype, shape)], attributes


def max_pool_grad(
    taps: Array,
    grad: Array,
    whole: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[int],
) -> Array:
    """Window by window."""
    result = np.zeros((*grad.shape[:2], *whole), np.float64)
    for index in np.ndindex(*grad.shape):
        if taps[index] < math.prod(sizes):
            along = np.unravel_index(int(taps[index]), sizes)
            lists = zip(index[2:], along, strides, dilations, low, strict=True)
            at = tuple(int(o * stride + k * dilation - before) for o, k, stride, dilation, before in lists)
            if _is_in(result[index[:2]], at):
                result[(*index[:2], *at)] += grad[index]
    return result


def _avg_pool(x: Array, count_include_pad: bool, **windows: Any) -> Array:
    low, high = windows["low"], windows["high"]

    def mean(plane: Array, coordinates: Coordinates) -> float:
        counted = _found(plane, coordinates)
        total = sum((plane[at] for at in counted), 0.0)
        if count_include_pad:
            moved = [tuple(one + before for one, before in zip(at, low, strict=True)) for at in coordinates]
            sizes = [sum(one) for one in zip(plane.shape, low, high, strict=True)]
            counted = [
                at for at in moved if all(0 <= one < size for one, size in zip(at, sizes, strict=True))
            ]
        return total / len(counted) if counted else math.nan

    return _each(x, mean, np.float64, **windows)


def _lp_pool(x: Array, p: int, **windows: Any) -> Array:
    def norm(plane: Array, coordinates: Coordinates) -> Any:
        return sum((abs(plane[at]) ** p for at in _found(plane, coordinates)), np.float64(0)) ** (1 / p)

    return _each(x, norm, np.float64, **windows)


ROWS = (
    Row(logical.MaxPoolOp, _pool, _max_pool, NUMBERS),
    Row(logical.MaxPoolIndicesOp, _pool, max_pool_indices, NUMBERS),
    Row(logical.MaxPoolTapsOp, _pool, max_pool_taps),
    Row(logical.MaxPoolGradOp, _taps_and_grad, max_pool_grad),
    Row(logical.AvgPoolOp, _average, _avg_pool),
    Row(logical.LpPoolOp, _norm, _lp_pool),
)
