"""Losses, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row, axis_of, random_of, shape, values

REDUCTIONS = ("mean", "sum", "none")


def _pair(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw), special=False)
    target = values(draw, dtype, x.shape, special=False)
    return [x, target], {"reduction": draw(st.sampled_from(REDUCTIONS))}


def _huber(draw: Draw, dtype: str) -> OperandsAndAttrs:
    arrays, attributes = _pair(draw, dtype)
    return arrays, {**attributes, "delta": draw(st.sampled_from([1.0, 0.25, 2.0]))}


def _probable(draw: Draw, dtype: str) -> OperandsAndAttrs:
    (x, target), attributes = _pair(draw, dtype)
    return [x, random_of(draw).random(x.shape).astype(target.dtype)], attributes


def _labelled(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw), special=False)
    axis = axis_of(draw, x.shape)
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])
    ignored = draw(st.sampled_from([-100, 0, 1]))
    labels = random_of(draw).integers(0, x.shape[axis], sizes)
    labels = np.where(random_of(draw).random(sizes) < 0.2, ignored, labels)
    attributes = {
        "axis": axis,
        "reduction": draw(st.sampled_from(REDUCTIONS)),
        "ignore_index": ignored,
        "label_smoothing": draw(st.sampled_from([0.0, 0.125])),
    }
    return [x, np.asarray(labels).astype(draw(st.sampled_from([np.int64, np.int32])))], attributes


def _each(loss: Callable[..., float]) -> Callable[..., Any]:
    """The oracle that takes the loss of each pair of numbers."""

    def oracle(x: Array, target: Array, reduction: str, **attributes: float) -> Any:
        losses = [
            loss(*pair, **attributes)
            for pair in zip(x.ravel().tolist(), target.ravel().tolist(), strict=True)
        ]
        return _reduced(np.array(losses).reshape(x.shape), reduction, len(losses))

    return oracle


def _reduced(losses: Array, reduction: str, count: int) -> Any:
    if reduction == "none":
        return losses
    total = math.fsum(losses.ravel())
    return total if reduction == "sum" else total / count if count else math.nan


def _huber_of(x: float, target: float, delta: float) -> float:
    distance = abs(x - target)
    return distance**2 / 2 if distance <= delta else delta * (distance - delta / 2)


def _bce_of(x: float, target: float) -> float:
    probability = 1 / (1 + math.exp(-x))
    return -(target * math.log(probability) + (1 - target) * math.log(1 - probability))


def _entropies(
    x: Array, labels: Array, axis: int, reduction: str, ignore_index: int, label_smoothing: float
) -> Any:
    losses = np.zeros(labels.shape)
    lines = np.moveaxis(x, axis, -1)
    for index in np.ndindex(*labels.shape):
        if labels[index] == ignore_index:
            continue
        logarithms = lines[index] - np.logaddexp.reduce(lines[index])
        wanted = np.full(len(logarithms), label_smoothing / len(logarithms))
        wanted[labels[index]] += 1 - label_smoothing
        losses[index] = -np.dot(wanted, logarithms)
    return _reduced(losses, reduction, int(np.sum(labels != ignore_index)))


ROWS = (
    Row(logical.MseLossOp, _pair, _each(lambda x, target: (x - target) ** 2)),
    Row(logical.HuberLossOp, _huber, _each(_huber_of)),
    Row(logical.BceWithLogitsOp, _probable, _each(_bce_of)),
    Row(logical.CrossEntropyOp, _labelled, _entropies),
)
