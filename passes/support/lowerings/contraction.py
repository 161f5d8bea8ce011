"""Contractions as matmul."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.support.lowerings.base import Formulas, Lowering


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


FORMULAS: Formulas = {
    logical.LinearOp: _linear,
}
