"""Poolings of the builder: windows of ``[N, C, S1..Sk]``, one value for each spatial dimension in every list."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class PoolingOps(GraphCore):
    """One method an op; where not given, strides and dilations are 1, the paddings ``low`` and ``high`` 0."""

    def max_pool(
        self,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> Value:
        """The largest element of each window; NaN if it holds one."""
        windows = (sizes, strides, dilations, low, high)
        return self._insert(
            "max_pool", name, lambda: logical.MaxPoolOp(self._own(x), *windows, ceil_mode=ceil_mode)
        )

    def max_pool_indices(
        self,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> Value:
        """The place (i64) of the largest element of each window, in row-major order over the spatial dimensions."""
        windows = (sizes, strides, dilations, low, high)
        return self._insert(
            "max_pool_indices",
            name,
            lambda: logical.MaxPoolIndicesOp(self._own(x), *windows, ceil_mode=ceil_mode),
        )

    def avg_pool(
        self,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        name: str | None = None,
    ) -> Value:
        """The mean of each window's elements; with ``count_include_pad`` padding counts as zeros."""
        windows = (sizes, strides, dilations, low, high)
        return self._insert(
            "avg_pool",
            name,
            lambda: logical.AvgPoolOp(
                self._own(x), *windows, ceil_mode=ceil_mode, count_include_pad=count_include_pad
            ),
        )

    def lp_pool(
        self,
        x: Value,
        p: int,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        *,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> Value:
        """``(sum of |x| ** p) ** (1 / p)`` over each window."""
        windows = (sizes, strides, dilations, low, high)
        return self._insert(
            "lp_pool", name, lambda: logical.LpPoolOp(self._own(x), p, *windows, ceil_mode=ceil_mode)
        )
