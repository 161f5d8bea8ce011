"""Convolutions and the gradients of their weights become products of windows.

The bias of a convolution is added after the sums, so that it can join the epilogue.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS
from aicf.passes.logical.lowerings.base import Lowering

_WEIGHT = 1


def _split_bias(lower: Lowering, op: logical.ConvOp) -> SSAValue | None:
    """The convolution without its bias, and the addition of it."""
    if op.bias is None:
        return None
    sums = lower.add(op.of_operands(op.operand, op.weight, None), "sums")
    bias = lower.broadcast(op.bias, [1], op.info.sizes, "bias.broadcast")
    return lower.add(logical.AddOp(sums, bias), "bias")


register(
    OpExpansion(
        logical.ConvOp,
        ("conv",),
        FORMULAS[logical.ConvOp],
        "as a product of windows",
        kept=_split_bias,
        copied=(_WEIGHT,),
    ),
    OpExpansion(
        logical.ConvWeightGradOp,
        ("conv_weight_grad",),
        FORMULAS[logical.ConvWeightGradOp],
        "as a product with windows",
        copied=(0, 1),
    ),
)
