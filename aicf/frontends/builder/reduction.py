"""Reductions of the builder; a negative axis counts from the last."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value, positive_axis


class ReductionOps(GraphCore):
    """One method an op."""

    def reduce_sum(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The sum along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceSumOp, x, axes, keepdims, name)

    def reduce_mean(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The mean along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceMeanOp, x, axes, keepdims, name)

    def reduce_max(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The largest element along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceMaxOp, x, axes, keepdims, name)

    def _reduce(
        self,
        op_class: type[logical.ReduceOp],
        x: Value,
        axes: Sequence[int],
        keepdims: bool,
        name: str | None,
    ) -> Value:
        positions = sorted(positive_axis(axis, x.rank) for axis in axes)
        return self._insert(op_class.name, name, lambda: op_class(self._own(x), positions, keepdims=keepdims))
