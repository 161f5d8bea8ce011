"""Reductions as sums, maxima and arithmetic."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.support.lowerings.base import Formulas, Lowering, counting_element, static_size


def _reduce_mean(lower: Lowering, op: logical.ReduceMeanOp) -> SSAValue:
    """reduce_sum over the count, in a type that holds the count exactly."""
    axes = int_values(op.axes)
    sizes = tensor_info(op.operand.type).sizes
    count = math.prod(static_size(op, sizes[axis]) for axis in axes)
    wide = lower.cast(op.operand, counting_element(op.info.element, count), "widen")
    return lower.mean(wide, axes, op.keepdims is not None, "")


FORMULAS: Formulas = {
    logical.ReduceMeanOp: _reduce_mean,
}
