"""Meanings of reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.semantics.base import Array, Meaning


def _reduce_sum(op: logical.ReduceSumOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.sum(x, axis=int_values(op.axes), keepdims=op.keepdims is not None, dtype=x.dtype)


def _reduce_mean(op: logical.ReduceMeanOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axes = int_values(op.axes)
    count = math.prod(x.shape[axis] for axis in axes)
    return np.sum(x, axis=axes, keepdims=op.keepdims is not None, dtype=x.dtype) / count


def _reduce_max(op: logical.ReduceMaxOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.max(x, axis=int_values(op.axes), keepdims=op.keepdims is not None)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.ReduceSumOp: _reduce_sum,
    logical.ReduceMeanOp: _reduce_mean,
    logical.ReduceMaxOp: _reduce_max,
}
