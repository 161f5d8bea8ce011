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


def _reduce_min(op: logical.ReduceMinOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.min(x, axis=int_values(op.axes), keepdims=op.keepdims is not None)


def _reduce_prod(op: logical.ReduceProdOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.prod(x, axis=int_values(op.axes), keepdims=op.keepdims is not None, dtype=x.dtype)


def _reduce_l2(op: logical.ReduceL2Op, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.sqrt(np.sum(x * x, axis=int_values(op.axes), keepdims=op.keepdims is not None))


def _reduce_logsumexp(op: logical.ReduceLogSumExpOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axes = int_values(op.axes)
    largest = np.max(x, axis=axes, keepdims=True)
    # An infinite one stays out of the differences, where it would give NaN.
    shift = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    total = np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return total if op.keepdims is not None else np.squeeze(total, axes)


def _reduce_any(op: logical.ReduceAnyOp, operands: Sequence[Array]) -> Array:
    return np.any(operands[0] != 0, axis=int_values(op.axes), keepdims=op.keepdims is not None)


def _reduce_all(op: logical.ReduceAllOp, operands: Sequence[Array]) -> Array:
    return np.all(operands[0] != 0, axis=int_values(op.axes), keepdims=op.keepdims is not None)


def _cumsum(op: logical.CumsumOp, operands: Sequence[Array]) -> Array:
    axis = op.axis.value.data
    x = np.flip(operands[0], axis) if op.reverse is not None else operands[0]
    total = np.cumsum(x, axis=axis, dtype=x.dtype)
    if op.exclusive is not None:
        total = np.roll(total, 1, axis)
        total[(slice(None),) * axis + (0,)] = 0
    return np.flip(total, axis) if op.reverse is not None else total


def _argmax(op: logical.ArgmaxOp, operands: Sequence[Array]) -> Array:
    return np.argmax(operands[0], axis=op.axis.value.data, keepdims=op.keepdims is not None)


def _argmin(op: logical.ArgminOp, operands: Sequence[Array]) -> Array:
    return np.argmin(operands[0], axis=op.axis.value.data, keepdims=op.keepdims is not None)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.ReduceSumOp: _reduce_sum,
    logical.ReduceMeanOp: _reduce_mean,
    logical.ReduceMaxOp: _reduce_max,
    logical.ReduceMinOp: _reduce_min,
    logical.ReduceProdOp: _reduce_prod,
    logical.ReduceL2Op: _reduce_l2,
    logical.ReduceLogSumExpOp: _reduce_logsumexp,
    logical.ReduceAnyOp: _reduce_any,
    logical.ReduceAllOp: _reduce_all,
    logical.CumsumOp: _cumsum,
    logical.ArgmaxOp: _argmax,
    logical.ArgminOp: _argmin,
}
