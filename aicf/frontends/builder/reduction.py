"""Reductions, places of extremes and running sums of the builder; a negative axis counts from the last."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value, positive_axes, positive_axis


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

    def reduce_min(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The smallest element along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceMinOp, x, axes, keepdims, name)

    def reduce_prod(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The product along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceProdOp, x, axes, keepdims, name)

    def reduce_l2(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The Euclidean norm along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceL2Op, x, axes, keepdims, name)

    def reduce_logsumexp(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """``log(sum(exp(x)))`` along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceLogSumExpOp, x, axes, keepdims, name)

    def reduce_any(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """Whether any element along axes is other than 0, as i1; a negative axis counts from the last."""
        return self._reduce(logical.ReduceAnyOp, x, axes, keepdims, name)

    def reduce_all(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """Whether all elements along axes are other than 0, as i1; a negative axis counts from the last."""
        return self._reduce(logical.ReduceAllOp, x, axes, keepdims, name)

    def argmax(self, x: Value, axis: int = -1, *, keepdims: bool = False, name: str | None = None) -> Value:
        """The place (i64) of the largest element along an axis, the lowest of several; NaN is larger than all."""
        return self._arg(logical.ArgmaxOp, x, axis, keepdims, name)

    def argmin(self, x: Value, axis: int = -1, *, keepdims: bool = False, name: str | None = None) -> Value:
        """The place (i64) of the smallest element along an axis, the lowest of several; NaN is smaller than all."""
        return self._arg(logical.ArgminOp, x, axis, keepdims, name)

    def cumsum(
        self,
        x: Value,
        axis: int = -1,
        *,
        exclusive: bool = False,
        reverse: bool = False,
        name: str | None = None,
    ) -> Value:
        """The running sum along an axis: without the element itself if exclusive, from the end if reverse."""
        return self._insert(
            "cumsum",
            name,
            lambda: logical.CumsumOp(
                self._own(x), positive_axis(axis, x.rank), exclusive=exclusive, reverse=reverse
            ),
        )

    def _reduce(
        self,
        op_class: type[logical.ReduceOp],
        x: Value,
        axes: Sequence[int],
        keepdims: bool,
        name: str | None,
    ) -> Value:
        return self._insert(
            op_class.name,
            name,
            lambda: op_class(self._own(x), positive_axes(axes, x.rank), keepdims=keepdims),
        )

    def _arg(
        self, op_class: type[logical.ArgOp], x: Value, axis: int, keepdims: bool, name: str | None
    ) -> Value:
        return self._insert(
            op_class.name,
            name,
            lambda: op_class(self._own(x), positive_axis(axis, x.rank), keepdims=keepdims),
        )
