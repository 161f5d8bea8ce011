"""Dequantised tensors whose integers do as well: largest elements of windows, and what is quantised again as it was.

Dequantising keeps the order of integers where the scale is positive, so the largest element of a window is that of the
largest integer. Both rewrites are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.types import element_of
from aicf.passes.bodies.matching import splat_number
from aicf.passes.legalize.dequantised import I32, Dequantised, dequantised, scale_along
from aicf.passes.logical.lowerings.base import LowerBy, Lowering
from aicf.passes.support.identity import IdTable

_SCALES = (2.0**-64, 2.0**64)
"""Between which a scale gives back each integer that it multiplied when it divides."""


def use_integers(ops: Sequence[Operation], ids: IdTable) -> None:
    """Rewrites what can be of the ops of a function, in text order."""
    for op in ops:
        if isinstance(op, logical.MaxPoolOp) and _finds_elements(op):
            LowerBy(_pooled, ids).match_and_rewrite(op, PatternRewriter(op))
        elif isinstance(op, logical.CastOp):
            LowerBy(_stored_again, ids).match_and_rewrite(op, PatternRewriter(op))


def _finds_elements(op: logical.MaxPoolOp) -> bool:
    """Whether all windows find an element: what lies around the integers is one of them."""
    around = ((each.dilation, max(each.low, each.high), each.size) for each in op.windows)
    return op.ceil_mode is None and all(step == 1 and most < size for step, most, size in around)


def _number(found: Dequantised) -> float | None:
    """The scale, if it is one positive number of a usual size."""
    scale = scale_along(found.scale, None)
    if scale is None or scale.known is None or scale.known.size != 1:
        return None
    number = float(scale.known.item())
    return number if _SCALES[0] <= number <= _SCALES[1] else None


def _f32(number: float | None) -> float | None:
    return None if number is None else float(np.float32(number))


def _pooled(lower: Lowering, op: logical.MaxPoolOp) -> SSAValue | None:
    """The largest integers, dequantised."""
    found = dequantised(op.operand)
    if found is None or (number := _number(found)) is None or found.zeros[0] != found.zeros[1]:
        return None
    wide = lower.cast(lower.add(op.of_operands(found.stored), "integers"), I32, "i32")
    if found.zeros[0]:
        wide = lower.apply(logical.SubOp, wide, found.zeros[0], name="centred")
    value = lower.cast(wide, element_of(op.result.type), "f32")
    return lower.add(logical.MulOp(value, lower.splat(number, value, "scale")), "")


def _stored_again(_: Lowering, op: logical.CastOp) -> SSAValue | None:
    """Integers that were dequantised and are quantised with the same scale and zero point."""
    value, zero = op.operand, 0.0
    if (
        isinstance(value.owner, logical.AddOp)
        and (number := splat_number(value.owner.operands[1])) is not None
    ):
        value, zero = value.owner.operands[0], float(number)
    rounding = value.owner
    division = rounding.operand.owner if isinstance(rounding, logical.RoundOp) else None
    if not isinstance(division, logical.DivOp) or (found := dequantised(division.operands[0])) is None:
        return None
    is_same = found.zeros == (zero, zero) and _number(found) == _f32(splat_number(division.operands[1]))
    return found.stored if is_same and element_of(found.stored.type) == element_of(op.result.type) else None
