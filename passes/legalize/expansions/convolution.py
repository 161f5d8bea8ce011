"""Convolutions and the gradients of their weights become products of windows.

The bias of a convolution is added after the sums, so that it can join the epilogue.
"""

from __future__ import annotations

from math import prod
from operator import lt

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS
from aicf.passes.logical.lowerings.base import Lowering

_WEIGHT = 1
_SHORT = 2
"""Bytes of f16 and bf16."""


def _split_bias(lower: Lowering, op: logical.ConvOp) -> SSAValue | None:
    """The convolution without its bias, and the addition of it."""
    if op.bias is None:
        return None
    return _with_bias(lower, lower.add(op.of_operands(op.operand, op.weight, None), "sums"), op.bias)


def _by_formula_or_whole(lower: Lowering, op: logical.ConvTransposeOp) -> SSAValue | None:
    """The op without its bias; or its formula at once, so that its sums join what follows and its zeros what reads
    them: of windows next to each other or with gaps between or within, of groups, and of elements that no tensor core
    multiplies as they are. No kernel of any target runs those whole."""
    taps, strides = tensor_info(op.weight.type).shape[2:], int_values(op.strides)
    has_gaps = max(int_values(op.dilations)) > 1 or any(map(lt, taps, strides))
    is_short = op.info.element.is_float and op.info.element.bytes == _SHORT
    is_apart = prod(strides) > 1 and op.groups.value.data == 1 and not has_gaps
    if not is_short or not is_apart:
        return FORMULAS[logical.ConvTransposeOp](lower, op)
    if op.bias is None:
        return None
    return _with_bias(lower, lower.add(op.of_operands(op.operand, op.weight, None), "sums"), op.bias)


def _with_bias(lower: Lowering, sums: SSAValue, bias: SSAValue) -> SSAValue:
    """Sums and a bias for each channel."""
    spread = lower.broadcast(bias, [1], tensor_info(sums.type).sizes, "bias.broadcast")
    return lower.add(logical.AddOp(sums, spread), "bias")


register(
    OpExpansion(
        logical.ConvTransposeOp,
        ("conv_transpose",),
        FORMULAS[logical.ConvTransposeOp],
        "as convolutions of its phases",
        kept=_by_formula_or_whole,
    ),
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
