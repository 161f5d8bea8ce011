"""Depthwise convolutions as the kernel sees them: always three dimensions, and what follows the sums. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aicf.backends.base import Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    ConvProblem,
    conv_of_launch,
    conv_of_work,
    epilogue_accesses,
    misplaced,
)
from aicf.backends.cuda.families.gemm.problem import Access, strided

DIMS = 3
"""Dimensions of every problem; those that an operand lacks have one element and come first."""
DTYPES = ("f16", "bf16", "f32")
MOST_MULTIPLIER = 16
"""Outputs of a channel: of more, windows are shared by the columns of a product."""
MOST_PLACES = 1 << 30
"""Coordinates are i32, and so is the sum of two."""
MOST_RESULTS = 1 << 37
"""A grid has less than 2^31 blocks, of 64 threads at least."""


@dataclass(frozen=True)
class WindowDim:
    """The windows along one dimension.

    Args:
        whole, count: Elements of the operand, and of the result.
        taps, stride, dilation, low: Of windows: elements, steps, steps within, zeros before the first element.
        x_stride, weight_stride: Elements of memory between neighbours.
    """

    whole: int
    count: int
    taps: int
    stride: int
    dilation: int
    low: int
    x_stride: int
    weight_stride: int

    @property
    def reach(self) -> int:
        """From the first to the last element of a window."""
        return (self.taps - 1) * self.dilation

    @property
    def is_padded(self) -> bool:
        """Whether a window reaches out of the operand."""
        return self.low > 0 or (self.count - 1) * self.stride - self.low + self.reach >= self.whole


@dataclass(frozen=True)
class DepthwiseProblem:
    """A convolution with one input channel a group.

    Args:
        dtype: Of operand and weight.
        batch, channels, multiplier: Images, channels of the operand, and outputs of each.
        rank: Dimensions that the operand has.
        dims: Three of them, outermost first.
        x_planes: Elements between neighbouring images, and between neighbouring channels.
        weight_step: Elements between the weights of neighbouring outputs.
        x_alignment, weight_alignment: Bytes to which the first elements are aligned, at most 16.
        reads, writes: What follows the sums, over images, the three dimensions, and outputs.
    """

    dtype: str
    batch: int
    channels: int
    multiplier: int
    rank: int
    dims: tuple[WindowDim, ...]
    x_planes: tuple[int, int]
    weight_step: int
    x_alignment: int
    weight_alignment: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return self.channels * self.multiplier

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return prod(dim.taps for dim in self.dims)

    @property
    def elements(self) -> int:
        """Of the operand."""
        return self.batch * self.channels * prod(dim.whole for dim in self.dims)

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.batch * self.outputs * prod(dim.count for dim in self.dims)

    @property
    def line(self) -> int:
        """The dimension of which a thread reads a line of elements at once, and may have several results.

        It follows from the window alone, so that the order of a sum depends on nothing else: the one before the last,
        along which neighbouring threads do not lie, unless windows have one element there.
        """
        return 1 if self.dims[1].taps > 1 else 2


def refusal(conv: ConvProblem) -> str | None:
    """Why there is no code for a convolution here, None if there is."""
    if conv.channels != 1:
        return f"its groups have {conv.channels} input channels, and one is summed here"
    if conv.outputs > MOST_MULTIPLIER:
        return f"each channel has {conv.outputs} outputs, more than {MOST_MULTIPLIER}: a product shares its windows"
    if conv.pixels * conv.groups * conv.outputs >= MOST_RESULTS:
        return f"it has {MOST_RESULTS} results or more"
    for dim in _dims(conv):
        reached = dim.whole + dim.count * dim.stride + dim.low + dim.reach + dim.dilation
        if reached >= MOST_PLACES:
            return f"its windows reach over {MOST_PLACES} places or more along a dimension"
    return None


def of_work(work: Workload, layout: str | None) -> DepthwiseProblem:
    """The problem of a work that is a convolution, its weight packed into `layout`, None for where it lies."""
    conv = conv_of_work(work, layout)
    own = [strided(one) for one in work.operands[FIRST_EXTRA:]], [strided(one) for one in work.results]
    return _problem(conv, *epilogue_accesses(work.code, conv, *own))


def of_launch(launch: Launch) -> DepthwiseProblem:
    """The problem of an instruction. Raises PlanError if its operands are not those of its record."""
    conv = conv_of_launch(launch)
    if refusal(conv) is not None:
        raise misplaced(launch)
    own = [strided(one) for one in launch.ins[FIRST_EXTRA:]], [strided(one) for one in launch.outs]
    return _problem(conv, *epilogue_accesses(launch.code, conv, *own))


_ONE = WindowDim(1, 1, 1, 1, 1, 0, 0, 0)


def _problem(conv: ConvProblem, reads: Sequence[Access], writes: Sequence[Access]) -> DepthwiseProblem:
    image, channel = conv.x_strides[:2]
    return DepthwiseProblem(
        conv.dtype,
        conv.batch,
        conv.groups,
        conv.outputs,
        conv.rank,
        dims=(*[_ONE] * (DIMS - conv.rank), *_dims(conv)),
        x_planes=(image, channel),
        weight_step=conv.weight_strides[0],
        x_alignment=conv.x_alignment,
        weight_alignment=conv.weight_alignment,
        reads=tuple(_in_three_dims(conv, access) for access in reads),
        writes=tuple(_in_three_dims(conv, access) for access in writes),
    )


def _dims(conv: ConvProblem) -> list[WindowDim]:
    return [
        WindowDim(*each)
        for each in zip(
            conv.sizes,
            conv.counts,
            conv.taps,
            conv.strides,
            conv.dilations,
            conv.low,
            conv.x_strides[2:],
            conv.weight_strides[2:],
            strict=True,
        )
    ]


def _in_three_dims(conv: ConvProblem, access: Access) -> Access:
    """An access over groups, images, pixels, and outputs of a group, as one over images, three dimensions, and all
    outputs: those of neighbouring groups are as far apart as those of one."""
    image, *pixels, output = access.strides[1 if conv.groups > 1 else 0 :]
    strides = (image, *[0] * (DIMS - conv.rank), *pixels, output)
    return Access(access.dtype, access.offset, strides, access.alignment)
