"""What products with block-quantised weights pass back; the weights themselves are whole numbers, which get nothing."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.training.gradients.base import STEPS, Adjoint, Gradients


def _operand(adjoint: Adjoint, op: logical.MatmulBlocksOp) -> SSAValue:
    """grad @ w."""
    packed = logical.DequantizeBlocksOp(adjoint.saved(op.packed), op.scheme.data)
    return adjoint.add(logical.MatmulOp(adjoint.grad, adjoint.add(packed, "weight")), "operand")


GRADIENTS: Gradients = {
    logical.DequantizeBlocksOp: STEPS,
    logical.MatmulBlocksOp: (_operand, None),
    logical.RoundedMatmulBlocksOp: STEPS,
}
