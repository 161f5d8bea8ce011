"""Casts of floats to integers cut off at the ends of the type by themselves: bounds there are left out."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from aicf.dialects.logical import CastOp, ClampOp, MaxOp, MinOp
from aicf.dialects.types import element_of
from aicf.passes.bodies.matching import splat_number
from aicf.passes.support.identity import replace_with_op


class CastWithoutBounds(RewritePattern):
    """A cast of floats that were cut off at the least or the largest integer of the type, or beyond; a NaN becomes 0
    with and without."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CastOp, rewriter: PatternRewriter, /) -> None:
        bound, element = op.operand.owner, element_of(op.result.type)
        if (
            element.kind != "int"
            or not element_of(op.operand.type).is_float
            or not isinstance(bound, Operation)
        ):
            return
        limits = np.iinfo(element.dtype)
        low, high = _bounds(bound)
        if low is None and high is None:
            return
        if (low is None or low <= limits.min) and (high is None or high >= limits.max):
            replace_with_op(rewriter, op, CastOp(bound.operands[0], element), bound)


def _bounds(op: Operation) -> tuple[float | None, float | None]:
    """Where an op cuts off what is its first operand; None where it does not."""
    if isinstance(op, ClampOp):
        return op.bounds
    if isinstance(op, MaxOp):
        return splat_number(op.operands[1]), None
    return None, splat_number(op.operands[1]) if isinstance(op, MinOp) else None
