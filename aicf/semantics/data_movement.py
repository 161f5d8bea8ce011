"""Meanings of the ops that move or repeat elements, and of constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import WHOLE, int_values
from aicf.semantics.base import Array, Meaning


def _reshape(op: logical.ReshapeOp, operands: Sequence[Array]) -> Array:
    return operands[0].reshape(op.info.shape)


def _transpose(op: logical.TransposeOp, operands: Sequence[Array]) -> Array:
    return np.transpose(operands[0], int_values(op.permutation))


def _broadcast(op: logical.BroadcastOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    shape = op.info.shape
    aligned = [1] * len(shape)
    for size, position in zip(x.shape, int_values(op.dimensions), strict=True):
        aligned[position] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def _slice(op: logical.SliceOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    windows = zip(int_values(op.starts), int_values(op.sizes), int_values(op.strides), strict=True)
    return x[tuple(_window(*window) for window in windows)]


def _window(start: int, size: int, stride: int) -> slice:
    return slice(None) if size == WHOLE else slice(start, start + (size - 1) * stride + 1, stride)


def _sliding(op: logical.WindowOp, operands: Sequence[Array]) -> Array:
    """As PyTorch's `unfold` would give it; the result may share memory with the operand."""
    (x,) = operands
    sizes, strides, dilations = map(int_values, (op.sizes, op.strides, op.dilations))
    axes = range(x.ndim - len(sizes), x.ndim)
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    every = np.lib.stride_tricks.sliding_window_view(x, extents, axis=tuple(axes))
    lead = (slice(None),) * (x.ndim - len(sizes))
    steps = tuple(slice(None, None, step) for step in (*strides, *dilations))
    return every[(*lead, *steps)]


def _concat(op: logical.ConcatOp, operands: Sequence[Array]) -> Array:
    return np.concatenate(operands, axis=op.axis.value.data)


def _constant(op: logical.ConstantOp, operands: Sequence[Array]) -> Array:
    return np.broadcast_to(op.array, op.info.shape)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.ReshapeOp: _reshape,
    logical.TransposeOp: _transpose,
    logical.BroadcastOp: _broadcast,
    logical.SliceOp: _slice,
    logical.WindowOp: _sliding,
    logical.ConcatOp: _concat,
    logical.ConstantOp: _constant,
}
