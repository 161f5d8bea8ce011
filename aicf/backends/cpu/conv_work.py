"""Reads a convolution from its operands: the problem, and where its epilogue reads and writes. No code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from xdsl.ir import Attribute

from aicf.backends.cpu.conv_spec import ConvProblem, Pair
from aicf.backends.cpu.records import get_int
from aicf.backends.cpu.target import ACCUMULATORS
from aicf.backends.nests import Access, Strided, access_of
from aicf.dialects.emit_kernels import KernelOp


def read_conv(attrs: Mapping[str, Attribute], x: Strided, weight: Strided, result: Strided) -> ConvProblem:
    """The problem of an instruction, from the attributes of its kind or a record that holds them.

    One dimension is a row of pixels, and so are all pixels where windows are single ones.
    """
    rank, groups = len(x.shape) - 2, get_int(attrs, "groups")

    def pair(name: str, absent: int) -> Pair:
        values = [get_int(attrs, f"{name}_{dim}") for dim in range(rank)]
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
        counts=_pair(result.shape[2:], 1),
        strides=pair("stride", 1),
        dilations=pair("dilation", 1),
        low=pair("low", 0),
        x_strides=(batch, channel, rows, columns),
        operand_type=x.dtype,
        weight_type=weight.dtype,
    )
    return problem.in_one_row() if problem.is_pointwise else problem


def _pair(values: Sequence[int], absent: int) -> Pair:
    rows, columns = values if len(values) == 2 else (absent, *values)
    return rows, columns


def pixel_accesses(
    code: KernelOp | None, extras: Sequence[Strided], outputs: Sequence[Strided]
) -> list[Access] | None:
    """Accesses over (image, channel, pixel) of what an epilogue reads besides the sums, then of its outputs.

    None where the pixels of a channel are not evenly apart in memory.
    """
    if code is None:
        found = [Access(out.dtype, 0, out.strides) for out in outputs]
    else:
        maps = (*code.in_maps[1:], *code.out_maps)
        operands = (*extras, *outputs)
        found = [access_of(map_, one.strides, one.dtype) for map_, one in zip(maps, operands, strict=True)]
    shape = outputs[0].shape
    moved: list[Access] = []
    for access in found:
        steps = [(n, step) for n, step in zip(shape[2:], access.strides[2:], strict=True) if n != 1]
        for (_, outer), (inner_size, inner) in pairwise(steps):
            if outer != inner_size * inner:
                return None
        pixel = steps[-1][1] if steps else 0
        moved.append(Access(access.dtype, access.offset, (*access.strides[:2], pixel)))
    return moved


def turned(accesses: Sequence[Access]) -> list[Access]:
    """Accesses over (image, channel, pixel) as those over (image, pixel, channel), or the other way round."""
    return [
        Access(access.dtype, access.offset, (image, columns, rows))
        for access in accesses
        for image, rows, columns in (access.strides,)
    ]
