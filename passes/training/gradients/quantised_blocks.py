"""What products with block-quantised weights pass back; the weights themselves are whole numbers, which get nothing."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.training.gradients.base import STEPS, Adjoint, Gradients


def _operand(adjoint: Adjoint, op: logical.MatmulBlocksOp) -> SSAValue:
    """grad @ w, with the matrix of each row where they are chosen."""
    packed = adjoint.saved(op.packed)
    if op.indices is None:
        weight = adjoint.add(logical.DequantizeBlocksOp(packed, op.scheme.data), "weight")
        return adjoint.add(logical.MatmulOp(adjoint.grad, weight), "operand")
    chosen = adjoint.add(logical.GatherOp(packed, adjoint.saved(op.indices), 0), "chosen")
    weight = adjoint.add(logical.DequantizeBlocksOp(chosen, op.scheme.data), "weight")
    row = adjoint.reshape(adjoint.grad, [*op.info.sizes[:-1], 1, op.info.sizes[-1]])
    product = adjoint.add(logical.MatmulOp(row, weight), "operand")
    return adjoint.reshape(product, tensor_info(op.operand.type).sizes)


GRADIENTS: Gradients = {
    logical.DequantizeBlocksOp: STEPS,
    logical.MatmulBlocksOp: (_operand, None, None),
    logical.RoundedMatmulBlocksOp: STEPS,
}
