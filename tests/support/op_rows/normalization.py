"""Normalisations: each line taken out, normalised by the textbook's formula and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row, axis_of, random_of, shape, values

EPSILONS = (1e-3, 0.01, 0.5)


def _along(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    return [x], {"axis": axis_of(draw, x.shape)}


def _along_with_empty_lines(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Some lines are -inf all along."""
    (x,), attrs = _along(draw, dtype)
    lines = tuple(1 if axis == attrs["axis"] else size for axis, size in enumerate(x.shape))
    if dtype.startswith(("f", "bf")):
        x = np.where(random_of(draw).random(lines) < 0.4, np.array(-np.inf, x.dtype), x)
    return [x], {**attrs, "empty_as_zero": True}


def _trailing(operands: int) -> Callable[[Draw, str], OperandsAndAttrs]:
    """The last dimensions, with ``operands`` arrays of their sizes."""

    def draw_norm(draw: Draw, dtype: str) -> OperandsAndAttrs:
        x = _spread(draw, dtype, shape(draw))
        axis = axis_of(draw, x.shape)
        factors = [values(draw, dtype, x.shape[axis:], special=False) for _ in range(operands)]
        return [x, *factors], {"axis": axis, "epsilon": draw(st.sampled_from(EPSILONS))}

    return draw_norm


def _spread(draw: Draw, dtype: str, sizes: tuple[int, ...]) -> Array:
    """Values no two of which are equal: the spread of equal ones is rounding, which the norm makes large."""
    x = values(draw, dtype, sizes)
    return (x + random_of(draw).permutation(x.size).reshape(sizes) / 8).astype(x.dtype)


def _batch(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 2))
    scale, bias, mean = (values(draw, dtype, x.shape[1:2], special=False) for _ in range(3))
    variance = random_of(draw).uniform(0.5, 4, x.shape[1]).astype(x.dtype)
    return [x, scale, bias, mean, variance], {"epsilon": draw(st.sampled_from(EPSILONS))}


def _groups(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = _spread(draw, dtype, shape(draw, 2))
    channels = x.shape[1]
    groups = draw(st.sampled_from([count for count in range(1, channels + 1) if channels % count == 0]))
    factors = [values(draw, dtype, (channels,), special=False) for _ in range(2)]
    return [x, *factors], {"groups": groups, "epsilon": draw(st.sampled_from(EPSILONS))}


def _softmax(x: Array, axis: int) -> Array:
    def line(elements: Array) -> Array:
        powers = np.exp(
            elements - max(elements.tolist()) if not np.isnan(elements).any() else np.nan * elements
        )
        return powers / sum(powers)

    return np.apply_along_axis(line, axis, x)


def _softmax_or_zero(x: Array, axis: int, empty_as_zero: bool) -> Array:
    is_empty = np.isneginf(x).all(axis, keepdims=True)
    return np.where(is_empty, 0.0, _softmax(np.where(is_empty, 0.0, x), axis))


def _log_softmax(x: Array, axis: int) -> Array:
    def line(elements: Array) -> Array:
        if np.isnan(elements).any() or np.isposinf(elements).any():
            return np.full_like(elements, np.nan)
        return elements - np.logaddexp.reduce(elements)

    return np.apply_along_axis(line, axis, x)


def _blocks(normalized: Callable[..., Array]) -> Callable[..., Array]:
    """The oracle that normalises what lies at each index of the leading dimensions."""

    def oracle(x: Array, *factors: Array, axis: int, epsilon: float) -> Array:
        result = np.empty_like(x)
        for index in np.ndindex(*x.shape[:axis]):
            result[index] = normalized(x[index], *factors, epsilon=epsilon)
        return result

    return oracle


def _standardized(block: Array, epsilon: float) -> Array:
    return (block - block.mean()) / np.sqrt(block.var() + epsilon)


def _layer(block: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    return _standardized(block, epsilon) * scale + bias


def _root_mean_square(block: Array, scale: Array, epsilon: float) -> Array:
    return block / np.sqrt(np.square(block).mean() + epsilon) * scale


def _batch_norm(x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    result = np.empty_like(x)
    for channel in range(x.shape[1]):
        deviation = np.sqrt(variance[channel] + epsilon)
        result[:, channel] = (x[:, channel] - mean[channel]) / deviation * scale[channel] + bias[channel]
    return result


def _group_norm(x: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    result, width = np.empty_like(x), x.shape[1] // groups
    for image, group in np.ndindex(len(x), groups):
        channels = slice(group * width, (group + 1) * width)
        result[image, channels] = _standardized(x[image, channels], epsilon)
    by_channel: Any = (slice(None), *[None] * (x.ndim - 2))
    return result * scale[by_channel] + bias[by_channel]


ROWS = (
    Row(logical.SoftmaxOp, _along, _softmax),
    Row(logical.SoftmaxOp, _along_with_empty_lines, _softmax_or_zero, name="softmax_or_zero"),
    Row(logical.LogSoftmaxOp, _along, _log_softmax),
    Row(logical.LayerNormOp, _trailing(2), _blocks(_layer)),
    Row(logical.RmsNormOp, _trailing(1), _blocks(_root_mean_square)),
    Row(logical.BatchNormOp, _batch, _batch_norm),
    Row(logical.GroupNormOp, _groups, _group_norm),
)
