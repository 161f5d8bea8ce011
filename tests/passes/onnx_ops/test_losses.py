"""ONNX's losses of classes, told one sample at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import Array, expect

RNG = np.random.default_rng(13)


def by_sample(
    log_prob: Array, labels: Array, weights: Array | None, reduction: str, ignored: int | None
) -> Array:
    """The loss, by a loop over samples."""
    losses, total = np.zeros(labels.shape), 0.0
    for index, label in np.ndenumerate(labels):
        if label == ignored:
            continue
        weight = 1.0 if weights is None else float(weights[label])
        losses[index] = -weight * float(log_prob[index[0], label, *index[1:]])
        total += weight
    if reduction == "none":
        return losses.astype(np.float32)
    return np.float32(losses.sum() / total if reduction == "mean" else losses.sum())


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("sizes", "weighted", "ignored"),
    [((), True, None), ((3,), False, 2), ((2, 3), True, -100), ((), False, None)],
)
def test_loss(op: str, reduction: str, sizes: tuple[int, ...], weighted: bool, ignored: int | None) -> None:
    x = RNG.standard_normal((4, 5, *sizes)).astype(np.float32)
    labels = RNG.integers(0, 5, (4, *sizes))
    labels.flat[1] = labels.flat[1] if ignored is None else ignored
    weights = RNG.uniform(0.5, 2.0, 5).astype(np.float32) if weighted else None
    log_prob = x.astype(np.float64)
    if op == "SoftmaxCrossEntropyLoss":
        log_prob = log_prob - np.log(np.exp(log_prob).sum(1, keepdims=True))
    expected = [by_sample(log_prob, labels, weights, reduction, ignored)]
    if op == "SoftmaxCrossEntropyLoss":
        expected.append(log_prob.astype(np.float32))
    attributes: dict[str, Any] = {"reduction": reduction} | (
        {} if ignored is None else {"ignore_index": ignored}
    )
    inputs = [x, labels] if weights is None else [x, labels, weights]
    expect(op, inputs, len(expected), opset=13, expected=expected, **attributes)
