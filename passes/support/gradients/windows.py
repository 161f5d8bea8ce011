"""What windows pass back: the sum over all windows that an element is in, as views, zeros and a reduction."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.support.gradients.base import Adjoint
from aicf.passes.support.writing import static_size


def zero(adjoint: Adjoint) -> SSAValue:
    """One zero, in the element type of `grad`."""
    type_ = tensor_info(adjoint.grad.type).with_sizes([])
    return adjoint.once("zero", lambda: adjoint.add(logical.ConstantOp(0.0, type_), "zero"))


def with_gaps(adjoint: Adjoint, value: SSAValue, strides: Sequence[int]) -> SSAValue:
    """`stride - 1` zeros between neighbours along each dimension."""
    if all(stride == 1 for stride in strides):
        return value
    sizes = [static_size(adjoint.op, size) for size in tensor_info(value.type).sizes]
    apart = [size for whole in sizes for size in (whole, 1)]
    gaps = [gap for stride in strides for gap in (0, stride - 1)]
    split = adjoint.add(logical.ReshapeOp(value, apart), "apart")
    spaced = adjoint.add(logical.PadOp(split, zero(adjoint), [0] * len(gaps), gaps), "gaps")
    joined = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    merged = adjoint.add(logical.ReshapeOp(spaced, joined), "merged")
    wanted = [size - stride + 1 for size, stride in zip(joined, strides, strict=True)]
    return adjoint.add(logical.SliceOp(merged, [0] * len(wanted), wanted), "between")


def from_windows(adjoint: Adjoint, op: logical.WindowOp) -> SSAValue:
    """One dimension after the other: [.., O.., K..] becomes [.., O.., K.., S] without the first O and K."""
    sizes, strides, dilations = map(int_values, (op.sizes, op.strides, op.dilations))
    source = tensor_info(op.operand.type)
    lead = source.rank - len(sizes)
    value = adjoint.grad
    for place, (stride, dilation) in enumerate(zip(strides, dilations, strict=True)):
        left = len(sizes) - place
        whole = static_size(op, source.sizes[lead + place])
        value = _overlapped(adjoint, _last(adjoint, value, [lead + left, lead]), stride, dilation, whole)
    return value


def _last(adjoint: Adjoint, value: SSAValue, axes: Sequence[int]) -> SSAValue:
    """The value with two axes behind all others, in this order."""
    rest = [dim for dim in range(tensor_info(value.type).rank) if dim not in axes]
    order = [*rest, *axes]
    if order == sorted(order):
        return value
    return adjoint.add(logical.TransposeOp(value, order), "order")


def _overlapped(adjoint: Adjoint, value: SSAValue, stride: int, dilation: int, whole: int) -> SSAValue:
    """[.., K, O] to [.., whole]: element k of window o is added to element o * stride + k * dilation.

    Rows that are `dilation` longer than they are read as lie by that much further right, one after the other: what
    belongs to one element of the operand comes to lie in one column.
    """
    rank = tensor_info(value.type).rank
    value = with_gaps(adjoint, value, [1] * (rank - 1) + [stride])
    *outer, size, length = (static_size(adjoint.op, size) for size in tensor_info(value.type).sizes)
    if size > 1:
        covered = length + (size - 1) * dilation
        value = _zeros_behind(adjoint, value, covered + dilation - length)
        value = adjoint.add(logical.ReshapeOp(value, [*outer, size * (covered + dilation)]), "shifted")
        cut = [*outer, size * covered]
        value = adjoint.add(logical.SliceOp(value, [0] * len(cut), cut), "cut")
        value = adjoint.add(logical.ReshapeOp(value, [*outer, size, covered]), "columns")
    value = adjoint.add(logical.ReduceSumOp(value, [rank - 2]), "sum")
    return _zeros_behind(adjoint, value, whole - (length + (size - 1) * dilation))


def _zeros_behind(adjoint: Adjoint, value: SSAValue, count: int) -> SSAValue:
    if not count:
        return value
    none = [0] * tensor_info(value.type).rank
    return adjoint.add(logical.PadOp(value, zero(adjoint), none, [*none[:-1], count]), "pad")
