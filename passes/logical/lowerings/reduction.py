"""Reductions as sums, maxima and arithmetic."""

from __future__ import annotations

import math

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import element_named, element_of, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering, counting_element
from aicf.passes.support.writing import static_size


def _reduce_mean(lower: Lowering, op: logical.ReduceMeanOp) -> SSAValue:
    """reduce_sum over the count, in a type that holds the count exactly."""
    axes = int_values(op.axes)
    sizes = tensor_info(op.operand.type).sizes
    count = math.prod(static_size(op, sizes[axis]) for axis in axes)
    wide = lower.cast(op.operand, counting_element(op.info.element, count), "widen")
    return lower.mean(wide, axes, op.keepdims is not None, "")


def _reduce_l2(lower: Lowering, op: logical.ReduceL2Op) -> SSAValue:
    """sqrt of the sum of squares."""
    x = lower.widen(op.operand)
    square = lower.apply(logical.MulOp, x, x, name="square")
    total = lower.add(
        logical.ReduceSumOp(square, int_values(op.axes), keepdims=op.keepdims is not None), "sum"
    )
    return lower.apply(logical.SqrtOp, total)


def _reduce_logsumexp(lower: Lowering, op: logical.ReduceLogSumExpOp) -> SSAValue:
    """max, sub, exp, sum, log, + max; the max is kept finite, since inf - inf is no number."""
    axes, x = int_values(op.axes), lower.widen(op.operand)
    sizes = tensor_info(x.type).sizes
    limit = float(np.finfo(element_of(x.type).dtype).max)
    largest = lower.add(logical.ReduceMaxOp(x, axes, keepdims=True), "max")
    above = lower.apply(logical.MaxOp, largest, -limit, name="above")
    shift = lower.apply(logical.MinOp, above, limit, name="shift")
    wide = lower.broadcast(shift, range(len(sizes)), sizes, "shift.broadcast")
    exponentials = lower.apply(logical.ExpOp, lower.apply(logical.SubOp, x, wide))
    total = lower.add(logical.ReduceSumOp(exponentials, axes, keepdims=True), "sum")
    result = lower.apply(logical.AddOp, lower.apply(logical.LogOp, total), shift)
    if op.keepdims is None:
        result = lower.add(logical.ReshapeOp(result, op.info.sizes), "reshape")
    return result


def _reduce_any(lower: Lowering, op: logical.ReduceAnyOp) -> SSAValue:
    """The or of `x != 0`."""
    truth = lower.cast(op.operand, element_named("i1"), "truth")
    return lower.add(logical.ReduceMaxOp(truth, int_values(op.axes), keepdims=op.keepdims is not None), "or")


def _reduce_all(lower: Lowering, op: logical.ReduceAllOp) -> SSAValue:
    """The and of `x != 0`."""
    truth = lower.cast(op.operand, element_named("i1"), "truth")
    return lower.add(logical.ReduceMinOp(truth, int_values(op.axes), keepdims=op.keepdims is not None), "and")


def _argmax(lower: Lowering, op: logical.ArgmaxOp) -> SSAValue:
    """The smallest index that holds the reduce_max."""
    return _index_of(lower, op, lower.add(logical.ReduceMaxOp(op.operand, [_axis(op)], keepdims=True), "max"))


def _argmin(lower: Lowering, op: logical.ArgminOp) -> SSAValue:
    """The smallest index that holds the reduce_min."""
    return _index_of(lower, op, lower.add(logical.ReduceMinOp(op.operand, [_axis(op)], keepdims=True), "min"))


def _index_of(lower: Lowering, op: logical.ArgOp, extreme: SSAValue) -> SSAValue:
    """The smallest index along the axis that holds ``extreme``; where that is NaN, that holds a NaN."""
    x, axis, info = op.operand, _axis(op), tensor_info(op.operand.type)
    size = info.sizes[axis]
    element = element_named("i32" if isinstance(size, int) and size < 1 << 31 else "i64")
    spread = lower.broadcast(extreme, range(info.rank), info.sizes, "extreme")
    found = lower.add(logical.CompareOp("eq", x, spread), "found")
    if info.element.is_float:
        missing = lower.add(logical.CompareOp("ne", x, x), "nan")
        found = lower.apply(logical.MaxOp, found, missing, name="or")
    position = lower.add(logical.IotaOp(axis, info.sizes, element), "iota")
    beyond = lower.splat(np.iinfo(element.dtype).max, position, "beyond")
    candidate = lower.add(logical.SelectOp(found, position, beyond), "candidate")
    least = lower.add(logical.ReduceMinOp(candidate, [axis], keepdims=op.keepdims is not None), "least")
    return lower.cast(least, op.info.element, "i64")


def _axis(op: logical.ArgOp) -> int:
    return op.axis.value.data


FORMULAS: Formulas = {
    logical.ReduceMeanOp: _reduce_mean,
    logical.ReduceL2Op: _reduce_l2,
    logical.ReduceLogSumExpOp: _reduce_logsumexp,
    logical.ReduceAnyOp: _reduce_any,
    logical.ReduceAllOp: _reduce_all,
    logical.ArgmaxOp: _argmax,
    logical.ArgminOp: _argmin,
}
