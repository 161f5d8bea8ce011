"""Reads the gradient of a weight as a convolution: each input channel is an image, each image of the batch a channel.

The windows of that convolution have an element for each position of the result that was differentiated, and its results
are as many as a window of the first convolution has elements. Strides and dilations change places. No code generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import Access, Strided
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.families.conv.problem import ConvProblem, Pair
from aicf.backends.cpu.target import ACCUMULATORS


def read_weight_grad(
    attrs: Mapping[str, Attribute], x: Strided, grad: Strided, result: Strided
) -> ConvProblem | None:
    """The problem of an instruction, from the attributes of its kind or a record that holds them.

    None where the positions of a channel of `grad` are not evenly apart in memory.
    """
    rank, groups = len(x.shape) - 2, read_integer(attrs, "groups")
    position = _step(grad.shape[2:], grad.strides[2:])
    if position is None:
        return None

    def pair(name: str, absent: int) -> Pair:
        return _pair([read_integer(attrs, f"{name}_{dim}") for dim in range(rank)], absent)

    image, channel, *steps = x.strides
    rows, columns = _pair(steps, 0)
    channels, outputs = x.shape[1] // groups, grad.shape[1] // groups
    return ConvProblem(
        ACCUMULATORS[x.dtype],
        batch=channels,
        groups=groups,
        channels=x.shape[0],
        outputs=outputs,
        sizes=_pair(x.shape[2:], 1),
        taps=_pair(grad.shape[2:], 1),
        counts=_pair(result.shape[2:], 1),
        strides=pair("dilation", 1),
        dilations=pair("stride", 1),
        low=pair("low", 0),
        x_strides=(channel, image, rows, columns),
        operand_type=x.dtype,
        group_step=channels * channel,
        weight_steps=(grad.strides[1], grad.strides[0], position),
    )


def _pair(values: Sequence[int], absent: int) -> Pair:
    rows, columns = values if len(values) == 2 else (absent, *values)
    return rows, columns


def _step(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """Elements from one position to the next, in row-major order; None if they differ."""
    steps = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in pairwise(steps):
        if outer != size * inner:
            return None
    return steps[-1][1] if steps else 1


def result_access(result: Strided) -> Access | None:
    """The result over (input channel, output channel, element of the window); None where the elements of a window are
    not evenly apart."""
    step = _step(result.shape[2:], result.strides[2:])
    if step is None:
        return None
    return Access(result.dtype, 0, (result.strides[1], result.strides[0], step))
