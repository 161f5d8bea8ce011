"""Contractions as matmul, and matmul with operands of one batch."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering


def _linear(lower: Lowering, op: logical.LinearOp) -> SSAValue:
    """matmul with the weight transposed, then the broadcast bias added."""
    product = lower.add(_product(lower, op), "matmul")
    if op.info.rank == 1:
        product = lower.add(logical.ReshapeOp(product, op.info.sizes), "reshape")
    if op.bias is None:
        return product
    sizes = op.info.sizes
    bias = lower.broadcast(op.bias, [len(sizes) - 1], sizes, "bias.broadcast")
    return lower.add(logical.AddOp(product, bias), "bias")


def _product(lower: Lowering, op: logical.LinearOp) -> logical.MatmulOp:
    operand = op.operand
    info = tensor_info(operand.type)
    if info.rank == 1:
        operand = lower.add(logical.ReshapeOp(operand, [1, *info.sizes]), "row")
    return logical.MatmulOp(operand, op.weight, transpose_b=True)


def _matmul(lower: Lowering, op: logical.MatmulOp) -> SSAValue | None:
    """Operands of one batch, or one matrix for all as the right one: what kernels know."""
    batch, rhs_batch = op.info.sizes[:-2], tensor_info(op.rhs.type).sizes[:-2]
    lhs = _with_batch(lower, op.lhs, batch, "lhs")
    if rhs_batch != batch and all(size == 1 for size in rhs_batch):
        rhs = _one_matrix(lower, op.rhs)
    else:
        rhs = _with_batch(lower, op.rhs, batch, "rhs")
    if lhs is op.lhs and rhs is op.rhs:
        return None
    return lower.add(op.of_operands(lhs, rhs), "")


def _with_batch(lower: Lowering, value: SSAValue, batch: Sequence[Size], suffix: str) -> SSAValue:
    """The matrices of ``value`` repeated to a batch."""
    sizes = tensor_info(value.type).sizes
    wanted = (*batch, *sizes[-2:])
    return lower.broadcast(value, range(len(wanted) - len(sizes), len(wanted)), wanted, suffix)


def _one_matrix(lower: Lowering, value: SSAValue) -> SSAValue:
    """The only matrix of a batch of one."""
    sizes = tensor_info(value.type).sizes
    return value if len(sizes) == 2 else lower.add(logical.ReshapeOp(value, sizes[-2:]), "matrix")


FORMULAS: Formulas = {
    logical.LinearOp: _linear,
    logical.MatmulOp: _matmul,
}
