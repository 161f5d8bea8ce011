"""Meanings of poolings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from xdsl.ir import Operation

from aicf.dialects import logical
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
    elements = _windows(op, x, _lowest(x))
    indices = _windows(op, np.arange(count).reshape(1, 1, *spatial), count)
    largest = np.max(elements, -1, keepdims=True)
    is_largest = (elements == largest) | (elements != elements)
    return np.min(np.where(is_largest, indices, count), -1)


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
    logical.AvgPoolOp: _avg_pool,
    logical.LpPoolOp: _lp_pool,
}
