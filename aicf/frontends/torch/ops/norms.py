"""ATen ops that normalize rows and groups of channels, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, empty_row, row

_EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23}
"""The distance from 1 to the next number, the default epsilon of RMS norms; for halves that of f32."""


def scale_and_bias(
    writer: Writer, weight: Value | None, bias: Value | None, shape: Sequence[int], dtype: str
) -> tuple[Value, Value]:
    """The weight, or ones, and the bias, or zeros."""
    scale = writer.full(shape, 1, dtype) if weight is None else writer.cast(weight, dtype)
    return scale, writer.full(shape, 0, dtype) if bias is None else writer.cast(bias, dtype)


def joint_type(writer: Writer, x: Value, *others: Value | None) -> str:
    """The type of all tensors; if halves meet others, the type that halves are computed in."""
    alike = all(other is None or other.dtype == x.dtype for other in others)
    return x.dtype if alike else writer.widened(x).dtype


def statistics(writer: Writer, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value]:
    """Mean and 1 / sqrt(variance + eps) along axes, which keep the size 1."""
    graph = writer.graph
    mean = graph.reduce_mean(x, axes, keepdims=True)
    centered = x - mean
    variance = graph.reduce_mean(centered * centered, axes, keepdims=True)
    return mean, graph.rsqrt(variance + eps)


def saved(writer: Writer, value: Value, index: int) -> Value:
    """A statistic in the shape and type of a result."""
    return writer.result(writer.reshape(value, writer.results[index].shape), index)


# Rows


def _layer_norm_of(
    writer: Writer, x: Value, axis: int, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    dtype = joint_type(writer, x, weight, bias)
    if not eps > 0:
        y = _by_steps(writer, writer.widened(x), range(axis, x.rank), eps)
        return writer.result(weighted(writer, y, weight, bias))
    scale, shift = scale_and_bias(writer, weight, bias, writer.sizes(x)[axis:], dtype)
    return writer.result(writer.graph.layer_norm(writer.cast(x, dtype), scale, shift, axis, eps))


def _by_steps(writer: Writer, x: Value, axes: Sequence[int], eps: float) -> Value:
    """A norm whose epsilon is not positive, for which there is no op."""
    mean, factor = statistics(writer, x, axes, eps)
    return (x - mean) * factor


def weighted(writer: Writer, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """x * weight + bias, which are broadcast from the right."""
    scaled = x if weight is None else x * writer.cast(weight, x.dtype)
    return scaled if bias is None else scaled + writer.cast(bias, x.dtype)


@row("layer_norm.default")
def _layer_norm(
    writer: Writer,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *hints: bool,
) -> Value:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    return _layer_norm_of(writer, x, x.rank - len(shape), weight, bias, eps)


@row("native_layer_norm.default")
def _native_layer_norm(
    writer: Writer, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value | None]:
    """The same, with mean and 1 / deviation of each row."""
    axis = x.rank - len(shape)
    y = _layer_norm_of(writer, x, axis, weight, bias, eps)
    if not writer.used & {1, 2}:
        return [y, None, None]
    mean, deviation = statistics(writer, writer.widened(x), range(axis, x.rank), eps)
    return [y, saved(writer, mean, 1), saved(writer, deviation, 2)]


@row("native_layer_norm_backward.default")
def _layer_norm_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    shape: Sequence[int],
    mean: Value,
    deviation: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> list[Value | None]:
    """The gradients at operand, weight and bias."""
    del bias
    axis = x.rank - len(shape)
    rows, axes = range(axis), range(axis, x.rank)
    grad, factor = writer.widened(grad), writer.widened(deviation)
    normal = (writer.widened(x) - writer.widened(mean)) * factor
    slope = grad if weight is None else grad * writer.widened(weight)
    return [
        writer.result(_centered_slope(writer, slope, normal, axes) * factor, 0) if mask[0] else None,
        _total(writer, grad * normal, rows, 1) if mask[1] else None,
        _total(writer, grad, rows, 2) if mask[2] else None,
    ]


def _centered_slope(writer: Writer, slope: Value, normal: Value, axes: Sequence[int]) -> Value:
    """h - mean(h) - n * mean(h * n), n being what was normalised and h the derivative by it."""
    graph = writer.graph
    tilt = graph.reduce_mean(slope * normal, axes, keepdims=True)
    return slope - graph.reduce_mean(slope, axes, keepdims=True) - normal * tilt


def _total(writer: Writer, value: Value, axes: Sequence[int], index: int) -> Value:
    """The sum along axes, as a result."""
    return saved(writer, writer.graph.reduce_sum(value, axes) if axes else value, index)


# Roots of mean squares


def _epsilon(x: Value, eps: float | None) -> float:
    return _EPSILON.get(x.dtype, _EPSILON["f32"]) if eps is None else eps


def _rms_norm_of(writer: Writer, x: Value, axis: int, weight: Value | None, eps: float | None) -> Value:
    dtype = joint_type(writer, x, weight)
    epsilon = _epsilon(x, eps)
    if not epsilon > 0:
        wide = writer.widened(x)
        square = writer.graph.reduce_mean(wide * wide, range(axis, x.rank), keepdims=True)
        return writer.result(weighted(writer, wide * writer.graph.rsqrt(square + epsilon), weight, None))
    scale, _ = scale_and_bias(writer, weight, None, writer.sizes(x)[axis:], dtype)
    return writer.result(writer.graph.rms_norm(writer.cast(x, dtype), scale, axis, epsilon))


@row("rms_norm.default")
def _rms_norm(
    writer: Writer, x: Value, shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Value:
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions."""
    return _rms_norm_of(writer, x, x.rank - len(shape), weight, eps)


@row("_fused_rms_norm.default")
def _fused_rms_norm(
    writer: Writer, x: Value, shape: Sequence[int], weight: Value | None, eps: float | None
) -> list[Value | None]:
    """The same, with 1 / root of each row."""
    axis = x.rank - len(shape)
    y = _rms_norm_of(writer, x, axis, weight, eps)
    if 1 not in writer.used:
        return [y, None]
    wide = writer.widened(x)
    square = writer.graph.reduce_mean(wide * wide, range(axis, x.rank), keepdims=True)
    return [y, saved(writer, writer.graph.rsqrt(square + _epsilon(x, eps)), 1)]


@row("_fused_rms_norm_backward.default")
def _rms_norm_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    shape: Sequence[int],
    root: Value,
    weight: Value | None,
    mask: Sequence[bool],
) -> list[Value | None]:
    """The gradients at operand and weight."""
    axis = x.rank - len(shape)
    grad, factor = writer.widened(grad), writer.widened(root)
    normal = writer.widened(x) * factor
    slope = grad if weight is None else grad * writer.widened(weight)
    tilt = writer.graph.reduce_mean(slope * normal, range(axis, x.rank), keepdims=True)
    return [
        writer.result((slope - normal * tilt) * factor, 0) if mask[0] else None,
        _total(writer, grad * normal, range(axis), 1) if mask[1] else None,
    ]


# Groups of channels


def by_channel(writer: Writer, value: Value | None, rank: int) -> Value | None:
    """A vector with an element for each channel, in a shape that meets them."""
    return None if value is None else writer.reshape(value, [*writer.sizes(value), *[1] * (rank - 2)])


def _group_norm_of(
    writer: Writer, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    dtype = joint_type(writer, x, weight, bias)
    sizes = writer.sizes(x)
    if not eps > 0:
        apart = writer.reshape(writer.widened(x), [sizes[0], groups, math.prod(sizes[1:]) // groups])
        y = writer.reshape(_by_steps(writer, apart, [2], eps), sizes)
        return writer.result(weighted(writer, y, *(by_channel(writer, v, x.rank) for v in (weight, bias))))
    scale, shift = scale_and_bias(writer, weight, bias, sizes[1:2], dtype)
    return writer.result(writer.graph.group_norm(writer.cast(x, dtype), scale, shift, groups, eps))


@row("group_norm.default")
def _group_norm(
    writer: Writer,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *hints: bool,
) -> Value:
    """Each group of neighbouring channels of a sample less its mean, over its deviation."""
    return _group_norm_of(writer, x, groups, weight, bias, eps)


@row("native_group_norm.default")
def _native_group_norm(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: int,
    channels: int,
    plane: int,
    groups: int,
    eps: float,
) -> list[Value | None]:
    """The same, with mean and 1 / deviation of each group."""
    y = _group_norm_of(writer, x, groups, weight, bias, eps)
    if not writer.used & {1, 2}:
        return [y, None, None]
    apart = writer.reshape(writer.widened(x), [batch, groups, channels // groups * plane])
    mean, deviation = statistics(writer, apart, [2], eps)
    return [y, saved(writer, mean, 1), saved(writer, deviation, 2)]


@row("native_group_norm_backward.default")
def _group_norm_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    mean: Value,
    deviation: Value,
    weight: Value | None,
    batch: int,
    channels: int,
    plane: int,
    groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:
    """The gradients at operand, weight and bias."""
    apart, by_group = [batch, groups, channels // groups, plane], [batch, groups, 1, 1]
    grad = writer.reshape(writer.widened(grad), apart)
    factor = writer.reshape(writer.widened(deviation), by_group)
    center = writer.reshape(writer.widened(mean), by_group)
    normal = (writer.reshape(writer.widened(x), apart) - center) * factor
    slope = grad
    if weight is not None:
        slope = grad * writer.reshape(writer.widened(weight), [1, groups, channels // groups, 1])
    found = _centered_slope(writer, slope, normal, [2, 3]) * factor if mask[0] else None
    return [
        None if found is None else saved(writer, found, 0),
        _total(writer, grad * normal, [0, 3], 1) if mask[1] else None,
        _total(writer, grad, [0, 3], 2) if mask[2] else None,
    ]


# Without elements


@empty_row("native_layer_norm_backward.default", "native_group_norm_backward.default")
def _no_gradients(writer: Writer, *rest: object) -> list[Value | None]:
    """Zeros for the scale and the shift, where nothing was normalised."""
    return [
        writer.full(result.shape, 0, result.dtype) if index in writer.used and index else None
        for index, result in enumerate(writer.results)
    ]
