"""Meanings of poolings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.window_counts import elements_found
from aicf.semantics.base import Array, Meaning, coefficient


def _windows(op: logical.PoolOp, x: Array, beyond: Any) -> Array:
    """``[N, C, O1..Ok, K]``: the elements of each window in row-major order; ``beyond`` is what lies around."""
    windows = op.windows
    padded = np.pad(x, [(0, 0), (0, 0), *((w.low, w.reach) for w in windows)], constant_values=beyond)
    every = sliding_window_view(padded, [w.extent for w in windows], tuple(range(2, x.ndim)))
    starts = [slice(None, (w.count - 1) * w.stride + 1, w.stride) for w in windows]
    steps = [slice(None, None, w.dilation) for w in windows]
    found = every[(slice(None), slice(None), *starts, *steps)]
    return found.reshape(*found.shape[: x.ndim], -1)


def _lowest(x: Array) -> Any:
    return -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min


def _max_pool(op: logical.MaxPoolOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.max(_windows(op, x, _lowest(x)), -1)


def _max_pool_indices(op: logical.MaxPoolIndicesOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    spatial = x.shape[2:]
    count = int(np.prod(spatial))
    indices = _windows(op, np.arange(count).reshape(1, 1, *spatial), count)
    found: Array = np.where(_are_largest(op, x), indices, count)
    return np.min(found, -1)


def _max_pool_taps(op: logical.MaxPoolTapsOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    inside: Array = _windows(op, np.ones((1, 1, *x.shape[2:]), np.bool_), False)
    taps: int = inside.shape[-1]
    found: Array = np.where(_are_largest(op, x) & inside, np.arange(taps), taps)
    return np.min(found, -1).astype(np.int8)


def _are_largest(op: logical.PoolOp, x: Array) -> Array:
    """Which elements of the windows are as large as the largest, or NaN."""
    elements = _windows(op, x, _lowest(x))
    found: Array = (elements == np.max(elements, -1, keepdims=True)) | (elements != elements)
    return found


def _max_pool_grad(op: logical.MaxPoolGradOp, operands: Sequence[Array]) -> Array:
    """Tap by tap, along each dimension at the elements that it is; one for all taps that are none of the operand. From
    the last tap on, so that windows come in row-major order."""
    taps, grad = operands
    whole, sizes, strides, dilations, low = (
        int_values(op.properties[name]) for name in ("whole", "sizes", "strides", "dilations", "low")
    )
    lead, counts = grad.shape[:2], grad.shape[2:]
    total = np.zeros((*lead, *(size + 1 for size in whole)), grad.dtype)
    for number, tap in reversed(list(enumerate(np.ndindex(*sizes)))):
        along: list[Array] = [
            np.arange(count) * stride + k * dilation - before
            for count, stride, k, dilation, before in zip(counts, strides, tap, dilations, low, strict=True)
        ]
        at = [
            np.where((index >= 0) & (index < size), index, size)
            for index, size in zip(along, whole, strict=True)
        ]
        place = np.ix_(*map(np.arange, lead), *at)
        np.add.at(total, place, np.where(taps == number, grad, 0))
    return total[(slice(None), slice(None), *map(slice, whole))]


def _avg_pool(op: logical.AvgPoolOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    total = np.sum(_windows(op, x, 0), -1, dtype=x.dtype)
    for axis, window in enumerate(op.windows, 2):
        found = elements_found(window, padding=op.count_include_pad is not None)
        total = total / found.reshape(-1, *[1] * (x.ndim - 1 - axis))
    return total


def _lp_pool(op: logical.LpPoolOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    p = op.p.value.data
    return np.sum(_windows(op, np.abs(x) ** p, 0), -1, dtype=x.dtype) ** coefficient(1 / p, op.info.element)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.MaxPoolOp: _max_pool,
    logical.MaxPoolIndicesOp: _max_pool_indices,
    logical.MaxPoolTapsOp: _max_pool_taps,
    logical.MaxPoolGradOp: _max_pool_grad,
    logical.AvgPoolOp: _avg_pool,
    logical.LpPoolOp: _lp_pool,
}
