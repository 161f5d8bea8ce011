"""Folds pads into the poolings and convolutions that read them: one op less, and no padded copy.

A pooling or convolution that pads by itself reads the operand as it lies; a separate pad writes a padded copy first.
Only pads of spatial dimensions with the very element that the padding stands for count, so that no bit changes.
"""

from __future__ import annotations

from math import copysign

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, UnitAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.dialects.logical import AvgPoolOp, ConvOp, MaxPoolOp, PadOp, int_values
from aicf.dialects.types import element_of
from aicf.passes.bodies.matching import splat_number
from aicf.passes.support.identity import replace_with_op

LEADING = 2
"""Dimensions before the spatial ones: batch and channels, which have no padding."""

Padded = MaxPoolOp | AvgPoolOp | ConvOp


class TakePadIn(RewritePattern):
    """Replaces a pad by padding of its user: a pad of zeros for an average, of what a convolution's own padding
    holds, of a value smaller than every number for a maximum.

    An average counts the zeros of the pad, so its own have to count too, or there are none. With `ceil_mode` windows
    may begin in a pad after the operand but not in such padding: those pads stay.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, Padded):
            return
        pad = op.operand.owner
        if not isinstance(pad, PadOp) or not _is_spatial(pad) or not _stands_for(pad.value, op):
            return
        if not isinstance(op, ConvOp) and op.ceil_mode is not None:
            return
        if (
            isinstance(op, AvgPoolOp)
            and op.count_include_pad is None
            and any((*_own(op, "low"), *_own(op, "high")))
        ):
            return
        made = op.clone()
        made.operands[0] = pad.operand
        for name, amounts in (("low", pad.low), ("high", pad.high)):
            along = zip(_own(op, name), int_values(amounts)[LEADING:], strict=True)
            made.properties[name] = DenseArrayBase.from_list(i64, [sum(both) for both in along])
        if isinstance(made, AvgPoolOp):
            made.count_include_pad = UnitAttr()
        replace_with_op(rewriter, op, made, pad)


def _own(op: Padded, name: str) -> tuple[int, ...]:
    return tuple(int_values(op.properties[name]))


def _is_spatial(pad: PadOp) -> bool:
    return not any((*int_values(pad.low)[:LEADING], *int_values(pad.high)[:LEADING]))


def _stands_for(value: SSAValue, op: Padded) -> bool:
    """Whether a pad of `value` is what padding of the op stands for."""
    number, element = splat_number(value), element_of(value.type)
    if number is None:
        return False
    if isinstance(op, MaxPoolOp):
        return number == (-np.inf if element.is_float else np.iinfo(element.dtype).min)
    if isinstance(op, ConvOp) and op.around != 0:
        return number == op.around
    return number == 0 and copysign(1.0, number) > 0
