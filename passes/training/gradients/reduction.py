"""What reductions and running sums pass back."""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import STEPS, Adjoint, Gradients


def _spread(adjoint: Adjoint, op: logical.ReduceOp, value: SSAValue) -> SSAValue:
    """A value of the result's shape repeated to the operand's."""
    return adjoint.spread(value, op.axes.get_values(), op.operand)


def _sum(adjoint: Adjoint, op: logical.ReduceSumOp) -> SSAValue:
    """1 for every element."""
    return _spread(adjoint, op, adjoint.grad)


def _mean(adjoint: Adjoint, op: logical.ReduceMeanOp) -> SSAValue:
    """1 / count for every element."""
    sizes = tensor_info(op.operand.type).sizes
    count = prod(static_size(op, sizes[axis]) for axis in op.axes.get_values())
    return _spread(adjoint, op, adjoint.apply(logical.DivOp, adjoint.grad, float(count)))


def _extreme(adjoint: Adjoint, op: logical.ReduceMaxOp | logical.ReduceMinOp) -> SSAValue:
    """Equal shares for all elements that equal the result."""
    x = adjoint.saved(op.operand)
    found = adjoint.compare("eq", x, _spread(adjoint, op, adjoint.result))
    share = adjoint.cast(found, element_of(x.type), "found")
    count = adjoint.total(share, op.axes.get_values(), keepdims=op.keepdims is not None)
    return adjoint.product(share, _spread(adjoint, op, adjoint.apply(logical.DivOp, adjoint.grad, count)))


def _prod(adjoint: Adjoint, op: logical.ReduceProdOp) -> SSAValue:
    """The product of all other elements, also where elements are 0."""
    x, axes, keepdims = adjoint.saved(op.operand), op.axes.get_values(), op.keepdims is not None
    is_zero = adjoint.compare("eq", x, 0.0)
    filled = adjoint.where(is_zero, 1.0, x)
    zeros = adjoint.total(adjoint.cast(is_zero, element_of(x.type), "zero"), axes, keepdims=keepdims)
    others = adjoint.product(
        adjoint.add(logical.ReduceProdOp(filled, axes, keepdims=keepdims), "others"), adjoint.grad
    )
    only_zero = adjoint.where(adjoint.compare("eq", zeros, 1.0), others, 0.0)
    without_zero = adjoint.where(adjoint.compare("eq", zeros, 0.0), others, 0.0)
    quotient = adjoint.apply(logical.DivOp, _spread(adjoint, op, without_zero), filled)
    return adjoint.where(is_zero, _spread(adjoint, op, only_zero), quotient)


def _l2(adjoint: Adjoint, op: logical.ReduceL2Op) -> SSAValue:
    """x / y; 0 where the norm is 0."""
    y = adjoint.result
    share = adjoint.where(adjoint.compare("eq", y, 0.0), 0.0, adjoint.apply(logical.DivOp, adjoint.grad, y))
    return adjoint.product(_spread(adjoint, op, share), adjoint.saved(op.operand))


def _logsumexp(adjoint: Adjoint, op: logical.ReduceLogSumExpOp) -> SSAValue:
    """exp(x - y)."""
    shifted = adjoint.apply(logical.SubOp, adjoint.saved(op.operand), _spread(adjoint, op, adjoint.result))
    return adjoint.product(_spread(adjoint, op, adjoint.grad), adjoint.apply(logical.ExpOp, shifted))


def _cumsum(adjoint: Adjoint, op: logical.CumsumOp) -> SSAValue:
    """The running sum from the other end."""
    scan = logical.CumsumOp(
        adjoint.grad, op.axis.value.data, exclusive=op.exclusive is not None, reverse=op.reverse is None
    )
    return adjoint.add(scan, "cumsum")


GRADIENTS: Gradients = {
    logical.ReduceSumOp: (_sum,),
    logical.ReduceMeanOp: (_mean,),
    logical.ReduceMaxOp: (_extreme,),
    logical.ReduceMinOp: (_extreme,),
    logical.ReduceProdOp: (_prod,),
    logical.ReduceL2Op: (_l2,),
    logical.ReduceLogSumExpOp: (_logsumexp,),
    logical.CumsumOp: (_cumsum,),
    logical.ReduceAnyOp: STEPS,
    logical.ReduceAllOp: STEPS,
    logical.ArgmaxOp: STEPS,
    logical.ArgminOp: STEPS,
}
