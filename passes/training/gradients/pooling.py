"""What poolings pass back: the maximum to the element that it is, means and norms to all elements of the window."""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import BY_FORMULA, STEPS, Adjoint, Gradients


def _max_pool(adjoint: Adjoint, op: logical.MaxPoolOp) -> SSAValue:
    """Sums at the first of the largest elements of each window."""
    info = tensor_info(op.operand.type)
    planes = prod(static_size(op, size) for size in info.sizes[:2])
    indices = adjoint.add(
        logical.MaxPoolIndicesOp(
            adjoint.saved(op.operand),
            sizes=int_values(op.sizes),
            strides=int_values(op.strides),
            dilations=int_values(op.dilations),
            low=int_values(op.low),
            high=int_values(op.high),
            ceil_mode=op.ceil_mode is not None,
        ),
        "places",
    )
    counts = [planes, prod(op.info.shape[2:])]
    zeros = adjoint.zeros([planes, prod(info.shape[2:])])
    rows, parts = (
        adjoint.add(logical.ReshapeOp(value, counts), "planes") for value in (indices, adjoint.grad)
    )
    summed = adjoint.add(logical.ScatterElementsOp(zeros, rows, parts, 1, "add"), "scatter")
    return adjoint.add(logical.ReshapeOp(summed, info.sizes), "reshape")


GRADIENTS: Gradients = {
    logical.MaxPoolOp: (_max_pool,),
    logical.MaxPoolIndicesOp: STEPS,
    logical.AvgPoolOp: BY_FORMULA,
    logical.LpPoolOp: BY_FORMULA,
}
