"""Convolutions of the builder."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class ConvolutionOps(GraphCore):
    """One method an op."""

    def conv(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        groups: int = 1,
        widening: bool = False,
        name: str | None = None,
    ) -> Value:
        """``[N, C, S..]`` convolved with ``[M, C / groups, K..]``, with zeros around; ``high`` is ``low`` if absent.

        With `widening` it is of integers of at most 16 bits, and its sums and the bias are i32.

        Raises:
            InvalidIR: the shapes or element types do not fit.
        """
        rank = max(weight.rank - 2, 0)
        low = _each(rank, low, 0)
        own_bias = None if bias is None else self._own(bias)
        return self._insert(
            "conv",
            name,
            lambda: logical.ConvOp(
                *(self._own(x), self._own(weight), own_bias),
                strides=_each(rank, strides, 1),
                low=low,
                high=low if high is None else high,
                dilations=_each(rank, dilations, 1),
                groups=groups,
                widening=widening,
            ),
        )

    def conv_transpose(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        extra: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        groups: int = 1,
        name: str | None = None,
    ) -> Value:
        """``[N, C, S..]``, transposed convolved with ``[C, M / groups, K..]``; ``low`` and ``high`` are cut off.

        Raises:
            InvalidIR: the shapes do not fit.
        """
        rank = max(weight.rank - 2, 0)
        low = _each(rank, low, 0)
        own_bias = None if bias is None else self._own(bias)
        return self._insert(
            "conv_transpose",
            name,
            lambda: logical.ConvTransposeOp(
                *(self._own(x), self._own(weight), own_bias),
                strides=_each(rank, strides, 1),
                low=low,
                high=low if high is None else high,
                extra=_each(rank, extra, 0),
                dilations=_each(rank, dilations, 1),
                groups=groups,
            ),
        )


def _each(rank: int, values: Sequence[int] | None, default: int) -> Sequence[int]:
    return [default] * rank if values is None else values
