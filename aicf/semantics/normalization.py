"""Meanings of normalisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning, coefficient


def _softmax(op: logical.SoftmaxOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axis = op.axis.value.data
    return softmax(x, axis, empty_as_zero=op.empty_as_zero is not None)


def softmax(x: Array, axis: int, *, empty_as_zero: bool) -> Array:
    """The softmax along an axis; where all elements along it are -inf, NaN or 0."""
    largest: Array = np.max(x, axis=axis, keepdims=True)
    is_empty = np.logical_and(largest == -np.inf, empty_as_zero)
    exponentials = np.exp(x - np.where(is_empty, np.zeros_like(largest), largest))
    total: Array = np.sum(exponentials, axis=axis, keepdims=True)
    return exponentials / np.where(is_empty, np.ones_like(total), total)


def _layer_norm(op: logical.LayerNormOp, operands: Sequence[Array]) -> Array:
    x, scale, bias = operands
    axes = logical.normalized_axes(op)
    centered = x - np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(centered * centered, axis=axes, keepdims=True)
    epsilon = coefficient(op.epsilon.value.data, op.info.element)
    return centered * (1 / np.sqrt(variance + epsilon)) * scale + bias


def _log_softmax(op: logical.LogSoftmaxOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axis = op.axis.value.data
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _rms_norm(op: logical.RmsNormOp, operands: Sequence[Array]) -> Array:
    x, scale = operands
    square = np.mean(x * x, axis=logical.normalized_axes(op), keepdims=True)
    epsilon = coefficient(op.epsilon.value.data, op.info.element)
    return x * (1 / np.sqrt(square + epsilon)) * scale


def _batch_norm(op: logical.BatchNormOp, operands: Sequence[Array]) -> Array:
    x, *statistics = operands
    scale, bias, mean, variance = (_along_channels(value, x.ndim) for value in statistics)
    epsilon = coefficient(op.epsilon.value.data, op.info.element)
    return (x - mean) * (1 / np.sqrt(variance + epsilon) * scale) + bias


def _group_norm(op: logical.GroupNormOp, operands: Sequence[Array]) -> Array:
    x, scale, bias = operands
    groups = x.reshape(x.shape[0], op.groups.value.data, -1)
    centered = groups - np.mean(groups, axis=-1, keepdims=True)
    variance = np.mean(centered * centered, axis=-1, keepdims=True)
    epsilon = coefficient(op.epsilon.value.data, op.info.element)
    normalized = (centered * (1 / np.sqrt(variance + epsilon))).reshape(x.shape)
    return normalized * _along_channels(scale, x.ndim) + _along_channels(bias, x.ndim)


def _along_channels(value: Array, rank: int) -> Array:
    """One element for each channel, shaped to broadcast along dimension 1."""
    return value.reshape(-1, *([1] * (rank - 2)))


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.SoftmaxOp: _softmax,
    logical.LayerNormOp: _layer_norm,
    logical.LogSoftmaxOp: _log_softmax,
    logical.RmsNormOp: _rms_norm,
    logical.BatchNormOp: _batch_norm,
    logical.GroupNormOp: _group_norm,
}
