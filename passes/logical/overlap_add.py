"""Writing ops that put windows together again: each element becomes the sum of what all windows hold of it.

That is what `logical.window` passes back, and what a transposed convolution computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.support.writing import OpWriter, static_size


def zero(write: OpWriter, like: SSAValue) -> SSAValue:
    """One zero of the element type of ``like``."""
    return write.add(logical.ConstantOp(0, tensor_info(like.type).with_sizes([])), "zero")


def zeros_around(write: OpWriter, value: SSAValue, low: Sequence[int], high: Sequence[int]) -> SSAValue:
    """The value with zeros before and after along each dimension; itself if there are none."""
    return around(write, value, low, high, 0)


def around(
    write: OpWriter, value: SSAValue, low: Sequence[int], high: Sequence[int], number: int
) -> SSAValue:
    """The value with a number before and after along each dimension; itself if there are none."""
    if not any(low) and not any(high):
        return value
    if number == 0:
        return write.add(logical.PadOp(value, zero(write, value), low, high), "pad")
    fill = write.add(logical.ConstantOp(number, tensor_info(value.type).with_sizes([])), "padding_value")
    return write.add(logical.PadOp(value, fill, low, high), "pad")


def with_gaps(write: OpWriter, value: SSAValue, strides: Sequence[int]) -> SSAValue:
    """`stride - 1` zeros between neighbours along each dimension."""
    if all(stride == 1 for stride in strides):
        return value
    sizes = _sizes(write, value)
    apart = [size for whole in sizes for size in (whole, 1)]
    gaps = [gap for stride in strides for gap in (0, stride - 1)]
    split = write.add(logical.ReshapeOp(value, apart), "apart")
    spaced = write.add(logical.PadOp(split, zero(write, value), [0] * len(gaps), gaps), "gaps")
    joined = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    merged = write.add(logical.ReshapeOp(spaced, joined), "merged")
    wanted = [size - stride + 1 for size, stride in zip(joined, strides, strict=True)]
    return write.add(logical.SliceOp(merged, [0] * len(wanted), wanted), "between")


def overlap_add(
    write: OpWriter, value: SSAValue, strides: Sequence[int], dilations: Sequence[int], least: Sequence[int]
) -> SSAValue:
    """[N.., O1..Ok, K1..Kk] to [N.., S1..Sk]: element k of window o is added to element o * stride + k * dilation.

    S is what the windows cover, or what ``least`` says if that is more, with zeros at the end. One dimension after the
    other: [.., O.., K..] becomes [.., O.., K.., S] without the first O and K.
    """
    lead = tensor_info(value.type).rank - 2 * len(strides)
    for index, (stride, dilation, size) in enumerate(zip(strides, dilations, least, strict=True)):
        windows, inside = lead, lead + len(strides) - index
        if dilation == 1 and stride >= _sizes(write, value)[inside]:
            value = _side_by_side(write, _last(write, value, [windows, inside]), stride)
        else:
            value = _columns_added(write, _last(write, value, [inside, windows]), stride, dilation)
        *outer, covered = _sizes(write, value)
        none = [0] * len(outer)
        value = zeros_around(write, value, [*none, 0], [*none, max(size - covered, 0)])
    return value


def _sizes(write: OpWriter, value: SSAValue) -> list[int]:
    return [static_size(write.op, size) for size in tensor_info(value.type).sizes]


def _last(write: OpWriter, value: SSAValue, axes: Sequence[int]) -> SSAValue:
    """The value with two axes after all others, in this order."""
    rest = [dim for dim in range(tensor_info(value.type).rank) if dim not in axes]
    order = [*rest, *axes]
    if order == sorted(order):
        return value
    return write.add(logical.TransposeOp(value, order), "order")


def _side_by_side(write: OpWriter, value: SSAValue, stride: int) -> SSAValue:
    """[.., O, K] to [.., S] of windows that do not overlap, with zeros between them where they leave gaps."""
    *outer, count, size = _sizes(write, value)
    none = [0] * (len(outer) + 1)
    value = zeros_around(write, value, [*none, 0], [*none, stride - size])
    value = write.add(logical.ReshapeOp(value, [*outer, count * stride]), "joined")
    covered = (count - 1) * stride + size
    if covered == count * stride:
        return value
    return write.add(logical.SliceOp(value, [0] * (len(outer) + 1), [*outer, covered]), "covered")


def _columns_added(write: OpWriter, value: SSAValue, stride: int, dilation: int) -> SSAValue:
    """[.., K, O] to [.., S]: row k shifted by k * dilation, and the rows added.

    Rows that are `dilation` longer than they are read as lie by that much further right, one after the other: what
    belongs to one element comes to lie in one column.
    """
    rank = tensor_info(value.type).rank
    value = with_gaps(write, value, [1] * (rank - 1) + [stride])
    *outer, size, length = _sizes(write, value)
    covered = length + (size - 1) * dilation
    if size > 1:
        none = [0] * (rank - 1)
        value = zeros_around(write, value, [*none, 0], [*none, covered + dilation - length])
        value = write.add(logical.ReshapeOp(value, [*outer, size * (covered + dilation)]), "shifted")
        cut = [*outer, size * covered]
        value = write.add(logical.SliceOp(value, [0] * len(cut), cut), "cut")
        value = write.add(logical.ReshapeOp(value, [*outer, size, covered]), "columns")
    return write.add(logical.ReduceSumOp(value, [rank - 2]), "sum")
