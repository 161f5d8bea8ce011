"""The windows of a pooling as an instruction states them: every backend that pools reads them here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from aicf.backends.common.record import read_integer


@dataclass(frozen=True)
class PoolAxis:
    """The windows along one dimension of ``whole`` elements."""

    whole: int
    size: int
    stride: int
    dilation: int
    low: int
    high: int
    count: int

    @property
    def length(self) -> int:
        """Elements from the first that a window can find to the last."""
        return (self.count - 1) * self.stride + (self.size - 1) * self.dilation + 1

    @property
    def is_inside(self) -> bool:
        """Whether no window leaves the operand."""
        return self.low == 0 and self.length <= self.whole


def read_axes(attrs: Mapping[str, Attribute], x: Sequence[int], y: Sequence[int]) -> tuple[PoolAxis, ...]:
    """The windows along each dimension, from the attributes of the kind or a record that holds them.

    Args:
        x, y: Sizes of the operand and of the result.
    """

    def value(name: str, dim: int) -> int:
        return read_integer(attrs, f"{name}_{dim}")

    return tuple(
        PoolAxis(
            whole,
            size=value("size", dim),
            stride=value("stride", dim),
            dilation=value("dilation", dim),
            low=value("low", dim),
            high=value("high", dim),
            count=count,
        )
        for dim, (whole, count) in enumerate(zip(x[2:], y[2:], strict=True))
    )
