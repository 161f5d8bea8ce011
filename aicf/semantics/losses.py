"""Meanings of losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning, coefficient


def _reduced(op: logical.LossOp, losses: Array, count: int) -> Array:
    """The losses, their sum, or that over their number."""
    if op.reduction.data == "none":
        return losses
    total = np.sum(losses, dtype=losses.dtype)
    with np.errstate(all="ignore"):
        return total / np.asarray(count, losses.dtype) if op.reduction.data == "mean" else total


def _mse_loss(op: logical.MseLossOp, operands: Sequence[Array]) -> Array:
    distance = operands[0] - operands[1]
    return _reduced(op, distance * distance, distance.size)


def _huber_loss(op: logical.HuberLossOp, operands: Sequence[Array]) -> Array:
    distance, delta = np.abs(operands[0] - operands[1]), coefficient(op.delta.value.data, op.info.element)
    line = delta * (distance - 0.5 * delta)
    return _reduced(op, np.where(distance > delta, line, 0.5 * distance * distance), distance.size)


def _bce_with_logits(op: logical.BceWithLogitsOp, operands: Sequence[Array]) -> Array:
    x, target = operands
    return _reduced(op, np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x))), x.size)


def _cross_entropy(op: logical.CrossEntropyOp, operands: Sequence[Array]) -> Array:
    x, labels = np.moveaxis(operands[0], op.axis.value.data, -1), operands[1]
    classes, smoothing = x.shape[-1], op.label_smoothing.value.data
    counts = labels != op.ignore_index.value.data
    known = (labels >= 0) & (labels < classes)
    shifted = x - np.max(x, axis=-1, keepdims=True)
    logarithms = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    known_classes = np.where(known, labels, 0)[..., None]
    picked = np.where(known, np.take_along_axis(logarithms, known_classes, -1)[..., 0], np.nan)
    if smoothing:
        own, spread = (coefficient(share, op.info.element) for share in (1 - smoothing, smoothing / classes))
        picked = own * picked + spread * np.sum(logarithms, axis=-1)
    return _reduced(op, np.where(counts, -picked, 0).astype(x.dtype), int(np.sum(counts)))


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.MseLossOp: _mse_loss,
    logical.HuberLossOp: _huber_loss,
    logical.BceWithLogitsOp: _bce_with_logits,
    logical.CrossEntropyOp: _cross_entropy,
}
