"""Reads a convolution from its operands: the problem, and where its epilogue reads and writes. No code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Literal

from xdsl.ir import Attribute
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr

from aicf.backends.common.loop_nest import Access, Strided, access_of
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.families.conv.windows import Stretch, stretches
from aicf.backends.cpu.families.gemm.schedule import GemmProblem
from aicf.backends.cpu.families.gemm.units import SHIFT
from aicf.backends.cpu.target import ACCUMULATORS, SHORT_INTEGERS
from aicf.dialects.emit_kernels import KernelOp

Along = Literal["pixels", "channels"]
"""What the lanes of a vector of finished sums are: pixels of one channel, or channels of one pixel."""

Pair = tuple[int, int]

_TERMS = 512
"""Products of one sum of a gradient of a weight, at least."""


@dataclass(frozen=True)
class ConvProblem:
    """A convolution along two dimensions, rows and columns of pixels; those of fewer have one row.

    Args:
        dtype: Element type of sums, of packed weights and of copies of the input.
        batch: Images.
        groups, channels, outputs: Groups, and input and output channels of each.
        sizes, taps, counts: Rows and columns of the input, of a window, and of the result.
        strides, dilations, low: Between windows, between elements of one, and zeros before the first element.
        x_strides: Elements between images, channels, rows and columns of the input.
        operand_type: Type of the input in memory, where it is not `dtype`.
        weight_type: Type of the weight in memory, where it is not that of the input: both are short integers then.
        around: What lies around the input.
        unit_channels: Channels of a unit, where it has more than element types alone say: 4, with avx512vnni.
        group_step: Elements between groups of the input, where they do not follow from those between channels.
        weight_steps: Elements between outputs, channels and elements of a window of a weight that does not lie in one
            piece.
    """

    dtype: str
    batch: int
    groups: int
    channels: int
    outputs: int
    sizes: Pair
    taps: Pair
    counts: Pair
    strides: Pair
    dilations: Pair
    low: Pair
    x_strides: tuple[int, int, int, int]
    operand_type: str = ""
    weight_type: str = ""
    around: int = 0
    unit_channels: int = 0
    group_step: int | None = None
    weight_steps: tuple[int, int, int] | None = None

    @property
    def group_elements(self) -> int:
        """Elements between groups of the input."""
        return self.channels * self.x_strides[1] if self.group_step is None else self.group_step

    @property
    def element(self) -> str:
        """Type of the input in memory, and of a weight of floats."""
        return self.operand_type or self.dtype

    @property
    def weight_element(self) -> str:
        """Type of the weight in memory."""
        return self.weight_type or self.element

    @property
    def widens(self) -> bool:
        """Whether input and weight are narrower than the sums. Each element of the input takes part in many products:
        it is widened once, on its way into a copy of the input, and not for each of them."""
        return self.element != self.dtype

    @property
    def terms(self) -> int:
        """Channels that one operation multiplies and adds up in i32: 4 of 8 bits, 2 as i16, or 1.

        Where there are several, what tiles read are *units*, elements of so many channels in the bytes of one sum; else
        a unit is one element.
        """
        is_apart = self.channels == 1 and self.groups > 1
        return self.unit_channels or (2 if self.element in SHORT_INTEGERS and not is_apart else 1)

    @property
    def pairs(self) -> bool:
        """Whether units are pairs of i16."""
        return self.terms == 2

    @property
    def quads(self) -> bool:
        """Whether units are four u8, multiplied with four i8."""
        return self.terms == 4

    @property
    def shift(self) -> int:
        """How much larger elements of the input are read than they are: as u8, where they are i8."""
        return SHIFT if self.quads and self.element == "i8" else 0

    @property
    def depth(self) -> int:
        """Units of the channels of a group; channels of the last one that are not there count as zeros."""
        return -(-self.channels // self.terms)

    @property
    def steps(self) -> int:
        """Units of one output element."""
        return self.depth * prod(self.taps)

    @property
    def channels_together(self) -> int:
        """Channels whose products are added up before they join the sums. Those of the gradient of a weight, over a
        whole batch, are too many for one sum to be exact enough."""
        return self.depth if self.weight_steps is None else -(-_TERMS // prod(self.taps))

    @property
    def pixels(self) -> int:
        """Pixels of a channel of the result."""
        return self.counts[0] * self.counts[1]

    @property
    def inner(self) -> int:
        """Products of one output element."""
        return self.channels * prod(self.taps)

    @property
    def spans(self) -> Pair:
        """Rows and columns of the input, with the zeros around it, that windows reach."""
        rows, columns = (
            (count - 1) * stride + (tap - 1) * dilation + 1
            for count, stride, tap, dilation in zip(
                self.counts, self.strides, self.taps, self.dilations, strict=True
            )
        )
        return rows, columns

    @property
    def is_padded(self) -> bool:
        """Whether a window reaches beyond the input."""
        ends = (span - low for span, low in zip(self.spans, self.low, strict=True))
        return any(self.low) or any(end > size for end, size in zip(ends, self.sizes, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result is made of the pixel at its position alone, and these are one run."""
        in_a_row = self.x_strides[2] == self.sizes[1] * self.x_strides[3]
        pointwise = self.taps == (1, 1) and self.strides == (1, 1) and not self.is_padded
        return pointwise and self.counts == self.sizes and in_a_row and self.groups == 1

    def along(self, dim: int) -> list[Stretch]:
        """The pixels of the result along rows (0) or columns (1), by whether their windows reach out."""
        reach = (self.taps[dim] - 1) * self.dilations[dim] + 1
        given = {"count": self.counts[dim], "stride": self.strides[dim], "low": self.low[dim]}
        return stretches(**given, reach=reach, whole=self.sizes[dim])

    def in_one_row(self) -> ConvProblem:
        """A pointwise convolution with all of its pixels as one row."""
        assert self.is_pointwise
        image, channel, _, column = self.x_strides
        row = (1, self.pixels)
        steps = (image, channel, self.pixels * column, column)
        return replace(self, sizes=row, counts=row, x_strides=steps)

    def in_quads(self) -> ConvProblem:
        """In units of four channels; one run of pixels in several rows, which threads may share."""
        own = self
        if self.is_pointwise:
            widest = max(16, self.pixels // 8)
            columns = next(size for size in range(min(widest, self.pixels), 0, -1) if self.pixels % size == 0)
            image, channel, _, column = self.x_strides
            rows = (self.pixels // columns, columns)
            steps = (image, channel, columns * column, column)
            own = replace(self, sizes=rows, counts=rows, x_strides=steps)
        return replace(own, unit_channels=4)

    def product(self, along: Along) -> GemmProblem:
        """The product that a pointwise convolution is, for every image: weight times pixels, whose rows are channels,
        or pixels times weight, whose rows are pixels."""
        image, channel, _, column = self.x_strides
        if along == "channels":
            return GemmProblem(
                *(self.dtype, self.pixels, self.outputs, self.channels),
                *((column, channel), (1, self.channels)),
                batch=(self.batch,),
                a_batch_strides=(image,),
                b_batch_strides=(0,),
                a_type=self.element,
                b_type=self.weight_element,
            )
        return GemmProblem(
            *(self.dtype, self.outputs, self.pixels, self.channels),
            *((self.channels, 1), (channel, column)),
            batch=(self.batch,),
            a_batch_strides=(0,),
            b_batch_strides=(image,),
            a_type=self.weight_element,
            b_type=self.element,
        )


def read_conv(
    attrs: Mapping[str, Attribute], x: Strided, weight: Strided, sizes: Sequence[int]
) -> ConvProblem:
    """The problem of an instruction, from the attributes of its kind or a record that holds them.

    One dimension is a row of pixels, and so are all pixels where windows are single ones. `sizes` are those of the
    result of the convolution alone: what follows it may have another rank.
    """
    rank, groups = len(x.shape) - 2, read_integer(attrs, "groups")

    def pair(name: str, absent: int) -> Pair:
        values = [read_integer(attrs, f"{name}_{dim}") for dim in range(rank)]
        return _pair(values, absent)

    batch, channel, *steps = x.strides
    rows, columns = _pair(steps, 0)
    problem = ConvProblem(
        ACCUMULATORS[x.dtype],
        batch=x.shape[0],
        groups=groups,
        channels=weight.shape[1],
        outputs=weight.shape[0] // groups,
        sizes=_pair(x.shape[2:], 1),
        taps=_pair(weight.shape[2:], 1),
        counts=_pair(sizes[2:], 1),
        strides=pair("stride", 1),
        dilations=pair("dilation", 1),
        low=pair("low", 0),
        x_strides=(batch, channel, rows, columns),
        operand_type=x.dtype,
        weight_type=weight.dtype,
        around=read_integer(attrs, "padding_value"),
    )
    return problem.in_one_row() if problem.is_pointwise else problem


def _pair(values: Sequence[int], absent: int) -> Pair:
    rows, columns = values if len(values) == 2 else (absent, *values)
    return rows, columns


def result_sizes(code: KernelOp | None, outputs: Sequence[Strided]) -> tuple[int, ...] | None:
    """The sizes of the convolution's own result, ``[N, M, O1..Ok]``; None where its epilogue repeats that, or reads a
    part of it."""
    if code is None:
        return outputs[0].shape
    if (loops := _loops(code)) is None:
        return None
    return tuple(1 if loop is None else code.parallel_sizes[loop] for loop in loops)


def _loops(code: KernelOp) -> list[int | None] | None:
    """For each dimension of the sums the loop of the epilogue that runs along it, None for one of size 1.

    The epilogue may have more dimensions of size 1, or fewer: it follows a reshape then.
    """
    sums = code.in_maps[0].results
    if not all(isinstance(expr, AffineDimExpr) or _is_zero(expr) for expr in sums):
        return None
    loops = [expr.position if isinstance(expr, AffineDimExpr) else None for expr in sums]
    if any(size != 1 and loop not in loops for loop, size in enumerate(code.parallel_sizes)):
        return None
    return loops


def _is_zero(expr: AffineExpr) -> bool:
    return isinstance(expr, AffineConstantExpr) and expr.value == 0


def pixel_accesses(
    code: KernelOp | None, extras: Sequence[Strided], outputs: Sequence[Strided]
) -> list[Access] | None:
    """Accesses over (image, channel, pixel) of what an epilogue reads besides the sums, then of its outputs.

    None where the pixels of a channel are not evenly apart in memory, or the sums are not read one by one.
    """
    sizes = result_sizes(code, outputs)
    if sizes is None:
        return None
    moved: list[Access] = []
    for access in _accesses(code, extras, outputs):
        steps = [(n, step) for n, step in zip(sizes[2:], access.strides[2:], strict=True) if n != 1]
        for (_, outer), (inner_size, inner) in pairwise(steps):
            if outer != inner_size * inner:
                return None
        pixel = steps[-1][1] if steps else 0
        moved.append(Access(access.dtype, access.offset, (*access.strides[:2], pixel)))
    return moved


def _accesses(code: KernelOp | None, extras: Sequence[Strided], outputs: Sequence[Strided]) -> list[Access]:
    """The same over the dimensions of the sums."""
    if code is None:
        return [Access(out.dtype, 0, out.strides) for out in outputs]
    loops = _loops(code)
    assert loops is not None
    maps, operands = (*code.in_maps[1:], *code.out_maps), (*extras, *outputs)
    found = [access_of(map_, one.strides, one.dtype) for map_, one in zip(maps, operands, strict=True)]
    return [
        Access(each.dtype, each.offset, tuple(0 if loop is None else each.strides[loop] for loop in loops))
        for each in found
    ]


def turned(accesses: Sequence[Access]) -> list[Access]:
    """Accesses over (image, channel, pixel) as those over (image, pixel, channel), or the other way round."""
    return [
        Access(access.dtype, access.offset, (image, columns, rows))
        for access in accesses
        for image, rows, columns in (access.strides,)
    ]
