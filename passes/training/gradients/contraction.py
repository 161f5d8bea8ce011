"""What products pass back: products."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size, multiply
from aicf.dialects.types import tensor_info
from aicf.passes.training.gradients.base import BY_FORMULA, Adjoint, Gradients


def _lhs(adjoint: Adjoint, op: logical.MatmulOp) -> SSAValue:
    """grad @ b.T, or b @ grad.T for a transposed a; summed where its batch was repeated."""
    b, turned = adjoint.saved(op.rhs), op.transpose_b is not None
    if op.transpose_a is not None:
        product = logical.MatmulOp(b, adjoint.grad, transpose_a=turned, transpose_b=True)
    else:
        product = logical.MatmulOp(adjoint.grad, b, transpose_b=not turned)
    return _unrepeated(adjoint, adjoint.add(product, "lhs"), op.lhs)


def _rhs(adjoint: Adjoint, op: logical.MatmulOp) -> SSAValue:
    """a.T @ grad, or grad.T @ a for a transposed b; summed where its batch was repeated."""
    a, turned, grad = adjoint.saved(op.lhs), op.transpose_a is not None, adjoint.grad
    if not turned and tensor_info(op.rhs.type).rank == 2:
        a, grad = _rows(adjoint, a), _rows(adjoint, grad)  # one product sums over the batch too
    if op.transpose_b is not None:
        product = logical.MatmulOp(grad, a, transpose_a=True, transpose_b=turned)
    else:
        product = logical.MatmulOp(a, grad, transpose_a=not turned)
    return _unrepeated(adjoint, adjoint.add(product, "rhs"), op.rhs)


def _rows(adjoint: Adjoint, value: SSAValue) -> SSAValue:
    """All dimensions but the last as one."""
    sizes = tensor_info(value.type).sizes
    if len(sizes) == 2:
        return value
    return adjoint.add(logical.ReshapeOp(value, [multiply(*sizes[:-1]), sizes[-1]]), "rows")


def _unrepeated(adjoint: Adjoint, value: SSAValue, like: SSAValue) -> SSAValue:
    """The sum over the batch dimensions along which `like` was repeated, in the shape of `like`."""
    sizes, wanted = tensor_info(value.type).sizes, tensor_info(like.type).sizes
    missing = len(sizes) - len(wanted)
    padded: tuple[Size, ...] = (*(1 for _ in range(missing)), *wanted)
    repeated = [dim for dim in range(len(sizes) - 2) if padded[dim] != sizes[dim]]
    return adjoint.shaped_like(adjoint.total(value, repeated, keepdims=True), like)


def _linear_operand(adjoint: Adjoint, op: logical.LinearOp) -> SSAValue:
    """grad @ w, with the operand's dimensions: what reads it can be part of the product."""
    product = logical.MatmulOp(_at_least_matrix(adjoint, adjoint.grad), adjoint.saved(op.weight))
    return adjoint.shaped_like(adjoint.add(product, "operand"), op.operand)


def _linear_weight(adjoint: Adjoint, op: logical.LinearOp) -> SSAValue:
    """grad.T @ x over all rows."""
    grad, x = (
        _rows(adjoint, _at_least_matrix(adjoint, value))
        for value in (adjoint.grad, adjoint.saved(op.operand))
    )
    return adjoint.add(logical.MatmulOp(grad, x, transpose_a=True), "weight")


def _linear_bias(adjoint: Adjoint, op: logical.LinearOp) -> SSAValue:
    """The sum over all rows."""
    return adjoint.total(adjoint.grad, range(op.info.rank - 1))


def _at_least_matrix(adjoint: Adjoint, value: SSAValue) -> SSAValue:
    info = tensor_info(value.type)
    if info.rank > 1:
        return value
    return adjoint.add(logical.ReshapeOp(value, [1, *info.sizes]), "row")


GRADIENTS: Gradients = {
    logical.MatmulOp: (_lhs, _rhs),
    logical.LinearOp: (_linear_operand, _linear_weight, _linear_bias),
    logical.AttentionOp: BY_FORMULA,
}
