"""Meanings of convolutions: one product of channels for each tap in a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.semantics.base import Array, Meaning


def _conv(op: logical.ConvOp, operands: Sequence[Array]) -> Array:
    x, weight, *bias = operands
    if op.widening is not None:
        x, weight = x.astype(np.int32), weight.astype(np.int32)
    strides, low, high, dilations = map(int_values, (op.strides, op.low, op.high, op.dilations))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(low, high, strict=True)], constant_values=op.around)
    groups, counts = op.groups.value.data, op.info.shape[2:]
    by_group = weight.reshape(groups, -1, *weight.shape[1:])
    result = np.zeros((len(x), groups, by_group.shape[1], *counts), x.dtype)
    for tap in np.ndindex(*weight.shape[2:]):
        seen = padded[(..., *_steps(tap, counts, strides, dilations))]
        channels = seen.reshape(len(x), groups, -1, *counts)
        result += np.einsum("gmc,ngc...->ngm...", by_group[(..., *tap)], channels)
    return _with_bias(result.reshape(op.info.shape), bias)


def _conv_transpose(op: logical.ConvTransposeOp, operands: Sequence[Array]) -> Array:
    x, weight, *bias = operands
    strides, dilations = int_values(op.strides), int_values(op.dilations)
    groups, counts = op.groups.value.data, x.shape[2:]
    channels = x.reshape(len(x), groups, -1, *counts)
    by_group = weight.reshape(groups, -1, *weight.shape[1:])
    covered = [
        (count - 1) * stride + (taps - 1) * dilation + 1
        for count, taps, stride, dilation in zip(counts, weight.shape[2:], strides, dilations, strict=True)
    ]
    total = np.zeros((len(x), groups, by_group.shape[2], *covered), x.dtype)
    for tap in np.ndindex(*weight.shape[2:]):
        product = np.einsum("gcm,ngc...->ngm...", by_group[(..., *tap)], channels)
        total[(..., *_steps(tap, counts, strides, dilations))] += product
    total = total.reshape(len(x), -1, *covered)
    result = np.zeros(op.info.shape, x.dtype)
    kept = [slice(low, low + size) for low, size in zip(int_values(op.low), op.info.shape[2:], strict=True)]
    inside = total[(..., *kept)]
    result[tuple(slice(size) for size in inside.shape)] = inside
    return _with_bias(result, bias)


def _steps(
    tap: Sequence[int], counts: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[slice]:
    """The element at `tap` of every window, along each dimension."""
    return [
        slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride)
        for k, count, stride, dilation in zip(tap, counts, strides, dilations, strict=True)
    ]


def _with_bias(result: Array, bias: Sequence[Array]) -> Array:
    return result + bias[0].reshape(-1, *[1] * (result.ndim - 2)) if bias else result


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.ConvOp: _conv,
    logical.ConvTransposeOp: _conv_transpose,
}
