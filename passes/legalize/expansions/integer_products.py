"""Products with wider sums become products of operands of the sums' type: of i32, which wrap around to the same sums as
those of short integers, and of f32, which holds the products of floats of 8 bits."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS
from aicf.passes.logical.lowerings.base import Lowering


def _cast_first(lower: Lowering, op: logical.MatmulOp) -> SSAValue:
    """The product of the operands in the type of the result."""
    element = op.info.element
    lhs, rhs = (
        lower.cast(value, element, name) for value, name in ((op.lhs, "lhs.wide"), (op.rhs, "rhs.wide"))
    )
    return lower.add(op.of_operands(lhs, rhs, widening=None), "")


register(
    OpExpansion(
        logical.MatmulOp,
        ("gemm",),
        _cast_first,
        "as a product of i32 or f32",
        is_requested=lambda op: op.widening is not None,
        kept=FORMULAS[logical.MatmulOp],
    )
)
