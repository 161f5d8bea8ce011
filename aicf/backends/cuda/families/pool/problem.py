"""Poolings as the cuda kernel sees them: always three spatial dimensions, with dimensions as one that lie as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.pool import PoolAxis, read_axes
from aicf.backends.common.record import read_integer, read_text
from aicf.dialects.window_counts import found_by_all

DIMS = 3
"""Spatial dimensions of every problem; those that an operand lacks have one element and come first."""
MOST_TAPS = 4096
"""Elements of the longest window: a reduction shares a longer one among blocks."""
MOST_PLACES = 1 << 30
"""Coordinates are i32, and so is the sum of two."""
MOST_READS = 1 << 40
"""Of all windows together: a grid has less than 2^31 blocks."""


class Border(Enum):
    """What is asked about the coordinate of an element before it is read."""

    NONE = "none"
    """All windows lie in the operand."""
    NEAREST = "nearest"
    """The nearest element of the operand is one of the window, too: reading it twice changes no maximum."""
    TESTED = "tested"
    """What lies around is replaced by what changes nothing."""


@dataclass(frozen=True)
class PoolDim:
    """The windows along one dimension, and where neighbours along it lie."""

    axis: PoolAxis
    x_stride: int
    y_stride: int

    @property
    def is_whole(self) -> bool:
        """Whether there is one window, which is all of the dimension."""
        axis = self.axis
        has_no_gaps = axis.dilation == 1 or axis.size == 1
        return axis.count == 1 and axis.low == 0 and axis.size == axis.whole and has_no_gaps

    def border(self, mode: str) -> Border:
        """How elements along the dimension are read."""
        axis = self.axis
        if axis.is_inside:
            return Border.NONE
        first_end, last_start = axis.size - axis.low, (axis.count - 1) * axis.stride - axis.low
        finds_one = axis.dilation == 1 and first_end > 0 and last_start < axis.whole
        return Border.NEAREST if mode == "max" and finds_one else Border.TESTED


@dataclass(frozen=True)
class PoolProblem:
    """Planes of a batch and of channels, whose windows have one result each.

    Args:
        mode: `max` or `avg`; `taps` for which element of a window is the largest.
        dtype: Of the elements.
        batch, channels: How many planes there are.
        dims: The three spatial dimensions, outermost first.
        padding_counts: Whether a mean counts padding.
        x_planes, y_planes: Elements between neighbours in the batch, and between neighbouring channels.
    """

    mode: str
    dtype: str
    batch: int
    channels: int
    dims: tuple[PoolDim, ...]
    padding_counts: bool
    x_planes: tuple[int, int]
    y_planes: tuple[int, int]

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return prod(dim.axis.size for dim in self.dims)

    @property
    def elements(self) -> int:
        """Of the operand."""
        return self.batch * self.channels * prod(dim.axis.whole for dim in self.dims)

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.batch * self.channels * prod(dim.axis.count for dim in self.dims)

    @property
    def how(self) -> str:
        """How elements are combined."""
        return "sum" if self.mode == "avg" else "max"

    @property
    def found(self) -> tuple[int | None, ...]:
        """Along each dimension the number of elements that all windows find; None where it is not one number."""
        return tuple(found_by_all(dim.axis, padding=self.padding_counts) for dim in self.dims)

    @property
    def borders(self) -> tuple[Border, ...]:
        """How elements along each dimension are read."""
        return tuple(dim.border(self.mode) for dim in self.dims)


def read_pool(attrs: Mapping[str, Attribute], x: Strided, y: Strided) -> PoolProblem:
    """The problem of an instruction, from the attributes of its kind or a record that holds them."""
    return _problem(attrs, x, y, read_text(attrs, "mode"), bool(read_integer(attrs, "count_include_pad")))


def read_taps(attrs: Mapping[str, Attribute], x: Strided, y: Strided) -> PoolProblem:
    """The same of an instruction that says which element of each window is the largest."""
    return _problem(attrs, x, y, "taps", False)


def _problem(
    attrs: Mapping[str, Attribute], x: Strided, y: Strided, mode: str, padding_counts: bool
) -> PoolProblem:
    axes = read_axes(attrs, x.shape, y.shape)
    dims = [PoolDim(*each) for each in zip(axes, x.strides[2:], y.strides[2:], strict=True)]
    return PoolProblem(
        mode,
        x.dtype,
        x.shape[0],
        x.shape[1],
        dims=_joined(dims),
        padding_counts=padding_counts,
        x_planes=(x.strides[0], x.strides[1]),
        y_planes=(y.strides[0], y.strides[1]),
    )


def refusal(problem: PoolProblem) -> str | None:
    """Why there is no code for a pooling, None if there is."""
    if problem.elements == 0:
        return "its operand has no elements"
    if problem.taps > MOST_TAPS:
        return f"its windows have more than {MOST_TAPS} elements: a reduction shares them among blocks"
    if problem.results * max(8, problem.taps) >= MOST_READS:
        return f"its windows have {MOST_READS} elements or more together"
    for axis in (dim.axis for dim in problem.dims):
        if axis.length + axis.whole + axis.low + axis.high + axis.stride + axis.dilation >= MOST_PLACES:
            return f"its windows reach over {MOST_PLACES} places or more along a dimension"
    return None


_ONE = PoolDim(PoolAxis(whole=1, size=1, stride=1, dilation=1, low=0, high=0, count=1), 0, 0)


def _joined(dims: Sequence[PoolDim]) -> tuple[PoolDim, ...]:
    """Three dimensions; one whose only window is all of it is part of the one before, where both lie as one."""
    found: list[PoolDim] = []
    for dim in dims:
        if found and (both := _as_one(found[-1], dim)) is not None:
            found[-1] = both
        else:
            found.append(dim)
    return (*[_ONE] * (DIMS - len(found)), *found)


def _as_one(outer: PoolDim, inner: PoolDim) -> PoolDim | None:
    whole, axis = inner.axis.whole, outer.axis
    if not inner.is_whole:
        return None
    if whole == 1:
        return outer
    side_by_side = axis.whole == 1 or outer.x_stride == whole * inner.x_stride
    if not side_by_side or not (axis.dilation == 1 or axis.size == 1):
        return None
    flat = replace(
        axis,
        whole=axis.whole * whole,
        size=axis.size * whole,
        stride=axis.stride * whole,
        dilation=1,
        low=axis.low * whole,
        high=axis.high * whole,
    )
    return PoolDim(flat, inner.x_stride, outer.y_stride)
