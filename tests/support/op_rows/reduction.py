"""Reductions, indices of extremes and running sums: every group of elements combined by Python, one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import (
    ALL,
    NUMBERS,
    Array,
    Draw,
    OperandsAndAttrs,
    Row,
    axis_of,
    is_float,
    random_of,
    shape,
    values,
)


def _axes_of(draw: Draw, rank: int) -> list[int]:
    return sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1)))


def _reduce(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    return [x], {"axes": _axes_of(draw, x.ndim), "keepdims": draw(st.booleans())}


def _factors(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Floats near 1, so that the product of many is a number."""
    (x,), attributes = _reduce(draw, dtype)
    if is_float(x):
        random = random_of(draw)
        near = np.exp(random.normal(scale=0.1, size=x.shape)) * random.choice([-1, 1], x.shape)
        x = np.where(np.isfinite(x), near, x).astype(x.dtype)
    return [x], attributes


def _along(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    return [x], {"axis": axis_of(draw, x.shape), "keepdims": draw(st.booleans())}


def _running(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    flags = {name: draw(st.booleans()) for name in ("exclusive", "reverse")}
    return [x], {"axis": axis_of(draw, x.shape), **flags}


def _each(combine: Callable[[list[Any]], Any]) -> Callable[..., Array]:
    """The oracle that combines the elements of each group."""

    def oracle(x: Array, axes: Sequence[int], keepdims: bool) -> Array:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        groups = np.transpose(x, [*kept, *axes]).reshape(math.prod(x.shape[axis] for axis in kept), -1)
        results = [combine(group) for group in groups.tolist()]
        sizes = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        made = _as_type(results, x.dtype).reshape(sizes)
        return made if keepdims else made.reshape([x.shape[axis] for axis in kept])

    return oracle


def _as_type(results: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    """Truth values as they are, Python's integers wrapped around in a type."""
    if isinstance(results[0], bool):
        return np.array(results)
    if dtype.kind == "f":
        return np.array(results, np.float64)
    bits = 8 * dtype.itemsize
    low = int(np.iinfo(dtype).min)
    return np.array([(result - low) % 2**bits + low for result in results], dtype)


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda group: math.nan if any(value != value for value in group) else pick(group)


def _index(pick: Callable[[list[Any]], Any]) -> Callable[..., Array]:
    """The first NaN, else the first of the extreme elements."""

    def first(group: list[Any]) -> int:
        unordered = [index for index, value in enumerate(group) if value != value]
        return unordered[0] if unordered else group.index(pick(group))

    def oracle(x: Array, axis: int, keepdims: bool) -> Array:
        return np.apply_along_axis(lambda line: first(line.tolist()), axis, x).reshape(
            [1 if dim == axis else size for dim, size in enumerate(x.shape) if keepdims or dim != axis]
        )

    return oracle


def _cumsum(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    def line(elements: Array) -> Array:
        ordered = elements.tolist()[::-1] if reverse else elements.tolist()
        sums = list(itertools.accumulate([0, *ordered]))
        sums = sums[:-1] if exclusive else sums[1:]
        return _as_type(sums[::-1] if reverse else sums, x.dtype)

    return np.apply_along_axis(line, axis, x)


ROWS = (
    Row(logical.ReduceSumOp, _reduce, _each(sum), NUMBERS),
    Row(logical.ReduceMeanOp, _reduce, _each(lambda group: sum(group) / len(group))),
    Row(logical.ReduceMaxOp, _reduce, _each(_extreme(max)), ALL),
    Row(logical.ReduceMinOp, _reduce, _each(_extreme(min)), ALL),
    Row(logical.ReduceProdOp, _factors, _each(math.prod), NUMBERS),
    Row(logical.ReduceL2Op, _reduce, _each(lambda group: np.sqrt(sum(value * value for value in group)))),
    Row(logical.ReduceLogSumExpOp, _reduce, _each(np.logaddexp.reduce)),
    Row(logical.ReduceAnyOp, _reduce, _each(lambda group: any(value != 0 for value in group)), ALL),
    Row(logical.ReduceAllOp, _reduce, _each(lambda group: all(value != 0 for value in group)), ALL),
    Row(logical.ArgmaxOp, _along, _index(max), ALL),
    Row(logical.ArgminOp, _along, _index(min), ALL),
    Row(logical.CumsumOp, _running, _cumsum, NUMBERS),
)
