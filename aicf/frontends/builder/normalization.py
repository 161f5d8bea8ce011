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
