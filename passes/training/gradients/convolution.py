"""What convolutions pass back: convolutions, transposed ones, and the gradients of weights."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp, int_value, int_values
from aicf.dialects.types import tensor_info
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import Adjoint, Gradients


def _conv_operand(adjoint: Adjoint, op: logical.ConvOp) -> SSAValue:
    return _transposed(adjoint, op, adjoint.grad, adjoint.saved(op.weight), op.operand)


def _conv_weight(adjoint: Adjoint, op: logical.ConvOp) -> SSAValue:
    return _of_weight(adjoint, op, adjoint.saved(op.operand), adjoint.grad, op.weight)


def _transpose_operand(adjoint: Adjoint, op: logical.ConvTransposeOp) -> SSAValue:
    """A convolution of what was not cut off."""
    return _convolved(adjoint, op, adjoint.grad, adjoint.saved(op.weight), op.operand)


def _transpose_weight(adjoint: Adjoint, op: logical.ConvTransposeOp) -> SSAValue:
    """As of the convolution that the op is the way back of: its operand is that one's result."""
    return _of_weight(adjoint, op, adjoint.grad, adjoint.saved(op.operand), op.weight)


def _weight_grad_operand(adjoint: Adjoint, op: logical.ConvWeightGradOp) -> SSAValue:
    return _transposed(adjoint, op, adjoint.saved(op.grad), adjoint.grad, op.operand)


def _weight_grad_grad(adjoint: Adjoint, op: logical.ConvWeightGradOp) -> SSAValue:
    return _convolved(adjoint, op, adjoint.saved(op.operand), adjoint.grad, op.grad)


def _bias(adjoint: Adjoint, op: LogicalOp) -> SSAValue:
    """The sum over batch and positions."""
    return adjoint.total(adjoint.grad, [0, *range(2, op.info.rank)])


def _transposed(
    adjoint: Adjoint, op: LogicalOp, grad: SSAValue, weight: SSAValue, like: SSAValue
) -> SSAValue:
    """The sums at each element of `like` over the windows that it is in."""
    low, sizes = int_values(op.properties["low"]), _sizes(op, like)
    ends = [part - before for part, before in zip(_covered(op, grad, weight), low, strict=True)]
    transposed = logical.ConvTransposeOp(
        *(grad, weight),
        **_lists(op),
        high=[max(end - size, 0) for end, size in zip(ends, sizes, strict=True)],
        extra=[max(size - end, 0) for end, size in zip(ends, sizes, strict=True)],
    )
    return adjoint.add(transposed, "operand")


def _of_weight(
    adjoint: Adjoint, op: LogicalOp, operand: SSAValue, grad: SSAValue, weight: SSAValue
) -> SSAValue:
    """The sums over batch and windows."""
    found = logical.ConvWeightGradOp(operand, grad, _sizes(op, weight), **_lists(op))
    return adjoint.add(found, "weight")


def _convolved(
    adjoint: Adjoint, op: LogicalOp, operand: SSAValue, weight: SSAValue, like: SSAValue
) -> SSAValue:
    """As many windows as `like` has; what lies after them is cut off. Zeros if all of them lie before the operand."""
    info, low = tensor_info(operand.type), int_values(op.properties["low"])
    ends = [part - before for part, before in zip(_covered(op, like, weight), low, strict=True)]
    if min(ends) < 1:
        return adjoint.zeros(tensor_info(like.type).sizes)
    own = _sizes(op, operand)
    kept = [min(size, end) for size, end in zip(own, ends, strict=True)]
    if kept != own:
        inside = logical.SliceOp(operand, [0] * info.rank, [*info.shape[:2], *kept])
        operand = adjoint.add(inside, "inside")
    high = [end - size for end, size in zip(ends, kept, strict=True)]
    return adjoint.add(logical.ConvOp(operand, weight, **_lists(op), high=high), "windows")


def _covered(op: LogicalOp, windows: SSAValue, weight: SSAValue) -> list[int]:
    """How many elements all windows cover together, along each dimension."""
    lists = (
        _sizes(op, windows),
        _sizes(op, weight),
        *(int_values(op.properties[name]) for name in ("strides", "dilations")),
    )
    return [
        (count - 1) * stride + (taps - 1) * dilation + 1
        for count, taps, stride, dilation in zip(*lists, strict=True)
    ]


def _sizes(op: LogicalOp, value: SSAValue) -> list[int]:
    """The sizes after batch and channels."""
    return [static_size(op, size) for size in tensor_info(value.type).sizes[2:]]


def _lists(op: LogicalOp) -> dict[str, Any]:
    """The attributes of a convolution with the windows of `op`."""
    return {
        **{name: int_values(op.properties[name]) for name in ("strides", "low", "dilations")},
        "groups": int_value(op.properties["groups"]),
    }


GRADIENTS: Gradients = {
    logical.ConvOp: (_conv_operand, _conv_weight, _bias),
    logical.ConvTransposeOp: (_transpose_operand, _transpose_weight, _bias),
    logical.ConvWeightGradOp: (_weight_grad_operand, _weight_grad_grad),
}
