"""Reads a convolution from its operands: the problem, and where its epilogue reads and writes. No code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from xdsl.ir import Attribute
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr

from aicf.backends.common.loop_nest import Access, Strided, access_of
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.families.conv.schedule import ConvProblem, Pair
from aicf.backends.cpu.target import ACCUMULATORS
from aicf.dialects.emit_kernels import KernelOp


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
