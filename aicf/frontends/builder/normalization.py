"""Normalisations of the builder."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value, positive_axis


class NormalizationOps(GraphCore):
    """One method an op."""

    def softmax(self, x: Value, axis: int = -1, *, name: str | None = None) -> Value:
        """Softmax along an axis."""
        return self._insert(
            "softmax", name, lambda: logical.SoftmaxOp(self._own(x), positive_axis(axis, x.rank))
        )

    def layer_norm(
        self,
        x: Value,
        scale: Value,
        bias: Value,
        axis: int = -1,
        epsilon: float = logical.DEFAULT_EPSILON,
        *,
        name: str | None = None,
    ) -> Value:
        """Layer normalisation over the dimensions from ``axis`` on."""
        values = [self._own(value) for value in (x, scale, bias)]
        return self._insert(
            "layer_norm",
            name,
            lambda: logical.LayerNormOp(*values, axis=positive_axis(axis, x.rank), epsilon=epsilon),
        )

    def log_softmax(self, x: Value, axis: int = -1, *, name: str | None = None) -> Value:
        """The logarithm of softmax along an axis."""
        return self._insert(
            "log_softmax", name, lambda: logical.LogSoftmaxOp(self._own(x), positive_axis(axis, x.rank))
        )

    def rms_norm(
        self,
        x: Value,
        scale: Value,
        axis: int = -1,
        epsilon: float = logical.DEFAULT_EPSILON,
        *,
        name: str | None = None,
    ) -> Value:
        """Normalisation by the root of the mean square over the dimensions from ``axis`` on."""
        values = [self._own(value) for value in (x, scale)]
        return self._insert(
            "rms_norm",
            name,
            lambda: logical.RmsNormOp(*values, axis=positive_axis(axis, x.rank), epsilon=epsilon),
        )

    def batch_norm(
        self,
        x: Value,
        scale: Value,
        bias: Value,
        mean: Value,
        variance: Value,
        epsilon: float = logical.DEFAULT_EPSILON,
        *,
        name: str | None = None,
    ) -> Value:
        """Batch normalisation of the channels (dimension 1) with given mean and variance."""
        values = [self._own(value) for value in (x, scale, bias, mean, variance)]
        return self._insert("batch_norm", name, lambda: logical.BatchNormOp(*values, epsilon=epsilon))

    def group_norm(
        self,
        x: Value,
        scale: Value,
        bias: Value,
        groups: int,
        epsilon: float = logical.DEFAULT_EPSILON,
        *,
        name: str | None = None,
    ) -> Value:
        """Normalisation over each group of channels (dimension 1) and all dimensions behind."""
        values = [self._own(value) for value in (x, scale, bias)]
        return self._insert(
            "group_norm", name, lambda: logical.GroupNormOp(*values, groups=groups, epsilon=epsilon)
        )
