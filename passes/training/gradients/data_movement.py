"""What moves of elements pass back: the move the other way, and sums where elements were repeated."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.logical.overlap_add import overlap_add, with_gaps, zeros_around
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import BY_FORMULA, Adjoint, Gradients


def _reshape(adjoint: Adjoint, op: logical.ReshapeOp) -> SSAValue:
    return adjoint.shaped_like(adjoint.grad, op.operand)


def _transpose(adjoint: Adjoint, op: logical.TransposeOp) -> SSAValue:
    """The inverse permutation."""
    permutation = int_values(op.permutation)
    inverse = [permutation.index(dim) for dim in range(len(permutation))]
    return adjoint.add(logical.TransposeOp(adjoint.grad, inverse), "transpose")


def _broadcast(adjoint: Adjoint, op: logical.BroadcastOp) -> SSAValue:
    """The sum along the dimensions that repeat."""
    source, dimensions = tensor_info(op.operand.type), int_values(op.dimensions)
    own = dict(zip(dimensions, source.sizes, strict=True))
    repeated = [dim for dim, size in enumerate(op.info.sizes) if own.get(dim) != size]
    return adjoint.shaped_like(adjoint.total(adjoint.grad, repeated), op.operand)


def _slice(adjoint: Adjoint, op: logical.SliceOp) -> SSAValue:
    """Zeros around, and between where the slice takes steps."""
    starts, strides = int_values(op.starts), int_values(op.strides)
    grad = with_gaps(adjoint, adjoint.grad, strides)
    sizes = tensor_info(grad.type).sizes
    whole = [static_size(op, size) for size in tensor_info(op.operand.type).sizes]
    taken = [static_size(op, size) for size in sizes]
    high = [size - start - count for size, start, count in zip(whole, starts, taken, strict=True)]
    return zeros_around(adjoint, grad, starts, high)


def _window(adjoint: Adjoint, op: logical.WindowOp) -> SSAValue:
    """The sum over all windows that an element is in."""
    source, count = tensor_info(op.operand.type), len(int_values(op.sizes))
    whole = [static_size(op, size) for size in source.sizes[source.rank - count :]]
    return overlap_add(adjoint, adjoint.grad, int_values(op.strides), int_values(op.dilations), whole)


def _concat(adjoint: Adjoint, op: logical.ConcatOp) -> SSAValue:
    """The part's own slice."""
    axis, part = op.axis.value.data, tensor_info(op.parts[adjoint.operand_index].type)
    before = [tensor_info(value.type).sizes[axis] for value in op.parts[: adjoint.operand_index]]
    starts = [0] * part.rank
    starts[axis] = sum(static_size(op, size) for size in before)
    sizes = [static_size(op, size) for size in part.sizes]
    return adjoint.add(logical.SliceOp(adjoint.grad, starts, sizes), f"part{adjoint.operand_index}")


def _flip(adjoint: Adjoint, op: logical.FlipOp) -> SSAValue:
    return adjoint.add(logical.FlipOp(adjoint.grad, int_values(op.axes)), "flip")


def _padded(adjoint: Adjoint, op: logical.PadOp) -> SSAValue:
    """What lies inside the border."""
    sizes = [static_size(op, size) for size in tensor_info(op.operand.type).sizes]
    return adjoint.shared(
        "inside", lambda: adjoint.add(logical.SliceOp(adjoint.grad, int_values(op.low), sizes), "inside")
    )


def _border(adjoint: Adjoint, op: logical.PadOp) -> SSAValue:
    """The sum over the border: zeros where the operand is."""
    info = tensor_info(op.operand.type)
    type_ = tensor_info(adjoint.grad.type).with_sizes(info.sizes)
    no = adjoint.add(logical.ConstantOp(0.0, type_), "no")
    one = adjoint.add(logical.ConstantOp(1.0, tensor_info(adjoint.grad.type).with_sizes([])), "one")
    border = adjoint.add(logical.PadOp(no, one, int_values(op.low), int_values(op.high)), "border")
    return adjoint.total(adjoint.product(adjoint.grad, border), range(info.rank))


GRADIENTS: Gradients = {
    logical.ReshapeOp: (_reshape,),
    logical.TransposeOp: (_transpose,),
    logical.BroadcastOp: (_broadcast,),
    logical.SliceOp: (_slice,),
    logical.WindowOp: (_window,),
    logical.ConcatOp: (_concat,),
    logical.FlipOp: (_flip,),
    logical.PadOp: (_padded, _border),
    logical.TileOp: BY_FORMULA,
}
