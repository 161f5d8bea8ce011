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
    exponentials = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return exponentials / np.sum(exponentials, axis=axis, keepdims=True)


def _layer_norm(op: logical.LayerNormOp, operands: Sequence[Array]) -> Array:
    x, scale, bias = operands
    axes = logical.normalized_axes(op)
    centered = x - np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(centered * centered, axis=axes, keepdims=True)
    epsilon = coefficient(op.epsilon.value.data, op.info.element)
    return centered * (1 / np.sqrt(variance + epsilon)) * scale + bias


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.SoftmaxOp: _softmax,
    logical.LayerNormOp: _layer_norm,
}
