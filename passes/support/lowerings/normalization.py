"""Normalisations as reductions and arithmetic."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.support.lowerings.base import Formulas, Lowering, counting_element, static_size
from aicf.semantics import coefficient


def _softmax(lower: Lowering, op: logical.SoftmaxOp) -> SSAValue:
    """max, sub, exp, sum, div along the axis."""
    axes, sizes = [op.axis.value.data], op.info.sizes
    every = range(len(sizes))
    x = lower.widen(op.operand)
    largest = lower.add(logical.ReduceMaxOp(x, axes, keepdims=True), "max")
    shifted = lower.add(logical.SubOp(x, lower.broadcast(largest, every, sizes, "max.broadcast")), "sub")
    exponentials = lower.add(logical.ExpOp(shifted), "exp")
    total = lower.add(logical.ReduceSumOp(exponentials, axes, keepdims=True), "sum")
    return lower.apply(logical.DivOp, exponentials, lower.broadcast(total, every, sizes, "sum.broadcast"))


def _layer_norm(lower: Lowering, op: logical.LayerNormOp) -> SSAValue:
    """mean, sub, square, mean, + epsilon, rsqrt, mul, mul, add."""
    axes, sizes = logical.normalized_axes(op), op.info.sizes
    every = range(len(sizes))
    count = math.prod(static_size(op, sizes[axis]) for axis in axes)
    wide = counting_element(op.info.element, count)
    x, scale, bias = (
        lower.cast(value, wide, f"{name}.widen" if name else "widen")
        for value, name in ((op.operand, ""), (op.scale, "scale"), (op.bias, "bias"))
    )
    mean = lower.broadcast(lower.mean(x, axes, True, "mean"), every, sizes, "mean.broadcast")
    centered = lower.add(logical.SubOp(x, mean), "centered")
    square = lower.add(logical.MulOp(centered, centered), "square")
    variance = lower.mean(square, axes, True, "variance")
    epsilon = lower.splat(coefficient(op.epsilon.value.data, op.info.element), variance, "epsilon")
    shifted = lower.add(logical.AddOp(variance, epsilon), "shifted")
    deviation = lower.add(logical.RsqrtOp(shifted), "rsqrt")
    factor = lower.broadcast(deviation, every, sizes, "rsqrt.broadcast")
    normalized = lower.add(logical.MulOp(centered, factor), "normalized")
    wide_scale = lower.broadcast(scale, axes, sizes, "scale.broadcast")
    scaled = lower.add(logical.MulOp(normalized, wide_scale), "scale")
    wide_bias = lower.broadcast(bias, axes, sizes, "bias.broadcast")
    return lower.add(logical.AddOp(scaled, wide_bias), "bias")


FORMULAS: Formulas = {
    logical.SoftmaxOp: _softmax,
    logical.LayerNormOp: _layer_norm,
}
