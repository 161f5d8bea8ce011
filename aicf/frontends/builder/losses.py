"""Losses of the builder, with PyTorch's names and defaults."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.dialects.logical import LossReduction
from aicf.frontends.builder.core import GraphCore, Value, positive_axis


class LossOps(GraphCore):
    """One method an op."""

    def mse_loss(
        self, x: Value, target: Value, reduction: LossReduction = "mean", *, name: str | None = None
    ) -> Value:
        """The squared error."""
        values = self._own(x), self._own(target)
        return self._insert("mse_loss", name, lambda: logical.MseLossOp(*values, reduction))

    def huber_loss(
        self,
        x: Value,
        target: Value,
        reduction: LossReduction = "mean",
        delta: float = 1.0,
        *,
        name: str | None = None,
    ) -> Value:
        """Half the squared error up to the distance ``delta``, then a line."""
        values = self._own(x), self._own(target)
        return self._insert("huber_loss", name, lambda: logical.HuberLossOp(*values, reduction, delta))

    def bce_with_logits(
        self, x: Value, target: Value, reduction: LossReduction = "mean", *, name: str | None = None
    ) -> Value:
        """The cross-entropy of ``sigmoid(x)`` and a target from 0 to 1."""
        values = self._own(x), self._own(target)
        return self._insert("bce_with_logits", name, lambda: logical.BceWithLogitsOp(*values, reduction))

    def cross_entropy(
        self,
        x: Value,
        labels: Value,
        axis: int | None = None,
        reduction: LossReduction = "mean",
        ignore_index: int = logical.IGNORE_INDEX,
        label_smoothing: float = 0.0,
        *,
        name: str | None = None,
    ) -> Value:
        """The cross-entropy of the softmax of x along ``axis`` and labels of its shape without the axis.

        Args:
            axis: That of the classes; by default dimension 1, or 0 of a single sample.
        """
        values = self._own(x), self._own(labels)
        place = min(1, x.rank - 1) if axis is None else positive_axis(axis, x.rank)
        return self._insert(
            "cross_entropy",
            name,
            lambda: logical.CrossEntropyOp(*values, place, reduction, ignore_index, label_smoothing),
        )
