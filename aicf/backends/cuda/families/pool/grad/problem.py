"""What a pooling by the largest element passes back, as the cuda kernel sees it: always three spatial dimensions.

The operand is cut into *cells*: along each dimension as many elements as windows are apart, from the first element on.
All cells are alike. The windows that reach an element of cell i are windows i + q, for a few numbers q that do not
depend on i.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import read_integer

DIMS = 3
"""Spatial dimensions of every problem; those that a pooling lacks have one element and come first."""
MOST_WINDOWS = 64
"""Windows that reach a cell, which one thread reads: their addresses are written out."""
MOST_SUMS = 64
"""Elements of a cell whose sums a thread has in registers."""
MOST_PLACES = 1 << 30
"""Coordinates are i32, and so is the sum of two."""


@dataclass(frozen=True)
class GradDim:
    """The windows along one dimension, and where neighbours along it lie.

    Args:
        whole: Elements of the operand.
        count: Windows.
        size, stride, dilation, low: Of windows: elements, steps, steps within, zeros before the first element.
        x_step, taps_step, grad_step: Elements between neighbours of the result and of the operands.
    """

    whole: int
    count: int
    size: int
    stride: int
    dilation: int
    low: int
    x_step: int
    taps_step: int
    grad_step: int

    @property
    def cells(self) -> int:
        """How many there are; the last one may reach beyond the operand."""
        return -(-self.whole // self.stride)

    @cached_property
    def taps(self) -> Mapping[int, tuple[int, ...]]:
        """For each q, ascending, which element of window i + q each element of cell i is; -1 where it is in no such
        window."""
        found: dict[int, list[int]] = {}
        for element in range(self.stride):
            for tap in range(self.size):
                q, rest = divmod(element + self.low - tap * self.dilation, self.stride)
                if rest == 0:
                    found.setdefault(q, [-1] * self.stride)[element] = tap
        return {q: tuple(found[q]) for q in sorted(found)}

    @property
    def is_inside(self) -> bool:
        """Whether there are windows i + q for every cell i."""
        return all(q >= 0 and self.cells - 1 + q < self.count for q in self.taps)


@dataclass(frozen=True)
class GradProblem:
    """Planes of a batch and of channels.

    Args:
        dtype: Of the gradients.
        batch, channels: How many planes there are.
        dims: The three spatial dimensions, outermost first.
        x_planes, taps_planes, grad_planes: Elements between neighbours in the batch, and between neighbouring channels.
    """

    dtype: str
    batch: int
    channels: int
    dims: tuple[GradDim, ...]
    x_planes: tuple[int, int]
    taps_planes: tuple[int, int]
    grad_planes: tuple[int, int]

    @property
    def cell(self) -> int:
        """Elements of a cell."""
        return prod(dim.stride for dim in self.dims)

    @property
    def windows(self) -> int:
        """Windows that reach a cell."""
        return prod(len(dim.taps) for dim in self.dims)

    @property
    def terms(self) -> int:
        """Sums over the elements of a cell have so many terms together."""
        return prod(sum(tap >= 0 for row in dim.taps.values() for tap in row) for dim in self.dims)

    @property
    def elements(self) -> int:
        """Of the result."""
        return self.batch * self.channels * prod(dim.whole for dim in self.dims)

    @property
    def results(self) -> int:
        """Windows of all planes."""
        return self.batch * self.channels * prod(dim.count for dim in self.dims)


def read_grad(attrs: Mapping[str, Attribute], taps: Strided, grad: Strided, x: Strided) -> GradProblem:
    """The problem of an instruction, from the attributes of its kind or a record that holds them; `x` is its result."""
    rank = len(x.shape) - 2
    dims = [
        GradDim(
            x.shape[2 + dim],
            grad.shape[2 + dim],
            *(read_integer(attrs, f"{name}_{dim}") for name in ("size", "stride", "dilation", "low")),
            *(each.strides[2 + dim] for each in (x, taps, grad)),
        )
        for dim in range(rank)
    ]
    none = GradDim(whole=1, count=1, size=1, stride=1, dilation=1, low=0, x_step=0, taps_step=0, grad_step=0)
    return GradProblem(
        grad.dtype,
        x.shape[0],
        x.shape[1],
        (*[none] * (DIMS - rank), *dims),
        *((each.strides[0], each.strides[1]) for each in (x, taps, grad)),
    )


def refusal(problem: GradProblem) -> str | None:
    """Why there is no code for a gradient, None if there is."""
    if problem.elements == 0 or problem.results == 0:
        return "it has no elements, or no windows"
    if problem.cell > MOST_SUMS:
        return f"its windows are {problem.cell} elements apart, and a thread has sums for {MOST_SUMS}"
    if problem.windows > MOST_WINDOWS:
        return (
            f"{problem.windows} windows reach an element or its neighbours, and a thread reads {MOST_WINDOWS}"
        )
    for dim in problem.dims:
        reach = dim.whole + dim.low + dim.size * dim.dilation + (dim.count + dim.size) * dim.stride
        if reach >= MOST_PLACES:
            return f"its windows reach over {MOST_PLACES} places or more along a dimension"
    return None
