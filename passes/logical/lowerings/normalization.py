"""Normalisations as reductions and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.types import ElementType, element_of, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering, counting_element
from aicf.passes.support.writing import static_size
from aicf.semantics import coefficient, composite_element

_WithEpsilon: TypeAlias = logical.LayerNormOp | logical.RmsNormOp | logical.BatchNormOp | logical.GroupNormOp


def _softmax(lower: Lowering, op: logical.SoftmaxOp) -> SSAValue:
    """max, sub, exp, sum, div along the axis.

    Elements that all are -inf have exponentials of 0 if what is subtracted is finite, and results of 0 if what divides
    them is not 0. It is the largest element and the sum for all others, whose sum is 1 or more.
    """
    axes, sizes = [op.axis.value.data], op.info.sizes
    every = range(len(sizes))
    x = lower.widen(op.operand)
    largest = lower.add(logical.ReduceMaxOp(x, axes, keepdims=True), "max")
    if op.empty_as_zero is not None:
        lowest = float(np.finfo(element_of(x.type).dtype).min)
        largest = lower.apply(logical.MaxOp, largest, lowest, name="finite")
    shifted = lower.add(logical.SubOp(x, lower.broadcast(largest, every, sizes, "max.broadcast")), "sub")
    exponentials = lower.add(logical.ExpOp(shifted), "exp")
    total = lower.add(logical.ReduceSumOp(exponentials, axes, keepdims=True), "sum")
    if op.empty_as_zero is not None:
        total = lower.apply(logical.MaxOp, total, 1.0, name="divisor")
    return lower.apply(logical.DivOp, exponentials, lower.broadcast(total, every, sizes, "sum.broadcast"))


def _log_softmax(lower: Lowering, op: logical.LogSoftmaxOp) -> SSAValue:
    """max, sub, exp, sum, log, sub along the axis."""
    axes, sizes = [op.axis.value.data], op.info.sizes
    every = range(len(sizes))
    x = lower.widen(op.operand)
    largest = lower.add(logical.ReduceMaxOp(x, axes, keepdims=True), "max")
    shifted = lower.add(logical.SubOp(x, lower.broadcast(largest, every, sizes, "max.broadcast")), "shifted")
    exponentials = lower.apply(logical.ExpOp, shifted)
    total = lower.add(logical.ReduceSumOp(exponentials, axes, keepdims=True), "sum")
    logarithm = lower.broadcast(lower.apply(logical.LogOp, total), every, sizes, "log.broadcast")
    return lower.apply(logical.SubOp, shifted, logarithm)


def _layer_norm(lower: Lowering, op: logical.LayerNormOp) -> SSAValue:
    """mean, sub, square, mean, + epsilon, rsqrt, mul, mul, add."""
    axes, sizes = logical.normalized_axes(op), op.info.sizes
    wide = _wide_enough(op, sizes, axes)
    x, scale, bias = _cast_all(lower, wide, {"": op.operand, "scale": op.scale, "bias": op.bias})
    normalized = _standardized(lower, op, x, axes)
    scaled = lower.add(
        logical.MulOp(normalized, lower.broadcast(scale, axes, sizes, "scale.broadcast")), "scale"
    )
    return lower.add(logical.AddOp(scaled, lower.broadcast(bias, axes, sizes, "bias.broadcast")), "bias")


def _rms_norm(lower: Lowering, op: logical.RmsNormOp) -> SSAValue:
    """square, mean, + epsilon, rsqrt, mul, mul."""
    axes, sizes = logical.normalized_axes(op), op.info.sizes
    wide = _wide_enough(op, sizes, axes)
    x, scale = _cast_all(lower, wide, {"": op.operand, "scale": op.scale})
    square = lower.add(logical.MulOp(x, x), "square")
    factor = _inverse_root(lower, op, lower.mean(square, axes, True, "mean"))
    spread = lower.broadcast(factor, range(len(sizes)), sizes, "rsqrt.broadcast")
    normalized = lower.add(logical.MulOp(x, spread), "normalized")
    return lower.add(
        logical.MulOp(normalized, lower.broadcast(scale, axes, sizes, "scale.broadcast")), "scale"
    )


def _batch_norm(lower: Lowering, op: logical.BatchNormOp) -> SSAValue:
    """sub, mul, add, with a factor for each channel made of variance and scale."""
    sizes = op.info.sizes
    given = {"": op.operand, "scale": op.scale, "bias": op.bias, "mean": op.mean, "variance": op.variance}
    x, scale, bias, mean, variance = _cast_all(lower, composite_element(op.info.element), given)
    centered = lower.add(logical.SubOp(x, lower.broadcast(mean, [1], sizes, "mean.broadcast")), "centered")
    factor = lower.add(logical.MulOp(_inverse_root(lower, op, variance), scale), "factor")
    scaled = lower.add(
        logical.MulOp(centered, lower.broadcast(factor, [1], sizes, "factor.broadcast")), "scale"
    )
    return lower.add(logical.AddOp(scaled, lower.broadcast(bias, [1], sizes, "bias.broadcast")), "bias")


def _group_norm(lower: Lowering, op: logical.GroupNormOp) -> SSAValue:
    """Channels as groups by channels of one: then a layer_norm over all but the first two dimensions."""
    batch, channels, *rest = op.info.sizes
    groups = op.groups.value.data
    assert isinstance(channels, int), "the verifier wants a number of channels"
    sizes = (batch, groups, channels // groups, *rest)
    axes = range(2, len(sizes))
    shapes = {"": (op.operand, sizes), "scale": (op.scale, sizes[1:3]), "bias": (op.bias, sizes[1:3])}
    # Reshaped first: before all arithmetic a reshape only changes how an operand is walked.
    grouped = {
        name: lower.add(logical.ReshapeOp(value, shape), f"{name}.groups" if name else "groups")
        for name, (value, shape) in shapes.items()
    }
    x, scale, bias = _cast_all(lower, _wide_enough(op, sizes, axes), grouped)
    normalized = _standardized(lower, op, x, axes)
    wide_scale = lower.broadcast(scale, (1, 2), sizes, "scale.broadcast")
    scaled = lower.add(logical.MulOp(normalized, wide_scale), "scale")
    wide_bias = lower.broadcast(bias, (1, 2), sizes, "bias.broadcast")
    shifted = lower.add(logical.AddOp(scaled, wide_bias), "bias")
    return lower.add(logical.ReshapeOp(lower.narrow(shifted), op.info.sizes), "channels")


def _standardized(
    lower: Lowering, op: logical.LayerNormOp | logical.GroupNormOp, x: SSAValue, axes: Sequence[int]
) -> SSAValue:
    """``x`` less its mean over its standard deviation along ``axes``."""
    sizes = tensor_info(x.type).sizes
    every = range(len(sizes))
    mean = lower.broadcast(lower.mean(x, axes, True, "mean"), every, sizes, "mean.broadcast")
    centered = lower.add(logical.SubOp(x, mean), "centered")
    square = lower.add(logical.MulOp(centered, centered), "square")
    deviation = _inverse_root(lower, op, lower.mean(square, axes, True, "variance"))
    factor = lower.broadcast(deviation, every, sizes, "rsqrt.broadcast")
    return lower.add(logical.MulOp(centered, factor), "normalized")


def _inverse_root(lower: Lowering, op: _WithEpsilon, value: SSAValue) -> SSAValue:
    """``1 / sqrt(value + epsilon)``."""
    epsilon = lower.splat(coefficient(op.epsilon.value.data, op.info.element), value, "epsilon")
    shifted = lower.add(logical.AddOp(value, epsilon), "shifted")
    return lower.add(logical.RsqrtOp(shifted), "rsqrt")


def _wide_enough(op: _WithEpsilon, sizes: Sequence[Size], axes: Sequence[int]) -> ElementType:
    """The type that a mean over ``axes`` is computed in."""
    count = math.prod(static_size(op, sizes[axis]) for axis in axes)
    return counting_element(op.info.element, count)


def _cast_all(lower: Lowering, element: ElementType, values: Mapping[str, SSAValue]) -> list[SSAValue]:
    """All values in one element type."""
    return [
        lower.cast(value, element, f"{name}.widen" if name else "widen") for name, value in values.items()
    ]


FORMULAS: Formulas = {
    logical.SoftmaxOp: _softmax,
    logical.LayerNormOp: _layer_norm,
    logical.LogSoftmaxOp: _log_softmax,
    logical.RmsNormOp: _rms_norm,
    logical.BatchNormOp: _batch_norm,
    logical.GroupNormOp: _group_norm,
}
