"""Convolutions, output by output and input by input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import NUMBERS, SHORT_INTEGERS, Array, Draw, OperandsAndAttrs, Row, values


def _shared(draw: Draw) -> tuple[int, list[int], dict[str, list[int]]]:
    """Groups, sizes of a window, and the lists that both ops have."""
    rank = draw(st.sampled_from((2, 2, 1, 3)))
    taps = [draw(st.integers(1, 3)) for _ in range(rank)]
    lists = {name: [draw(st.integers(0, 2)) for _ in taps] for name in ("low", "high")}
    lists |= {name: [draw(st.integers(1, 2)) for _ in taps] for name in ("strides", "dilations")}
    return draw(st.sampled_from((1, 1, 2, 3))), taps, lists


def _conv(draw: Draw, dtype: str) -> OperandsAndAttrs:
    groups, taps, lists = _shared(draw)
    channels, outputs = (draw(st.integers(1, 3)) for _ in range(2))
    sizes = [
        max((size - 1) * dilation + 1 - low - high, 1) + draw(st.integers(0, 4))
        for size, dilation, low, high in zip(
            taps, lists["dilations"], lists["low"], lists["high"], strict=True
        )
    ]
    x = values(draw, dtype, [draw(st.integers(1, 2)), channels * groups, *sizes], special=False)
    weight = values(draw, dtype, [outputs * groups, channels, *taps], special=False)
    return [x, weight, *_bias(draw, dtype, outputs * groups)], {**lists, "groups": groups}


def _widening_conv(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Operand and weight of any two short types, with numbers at the ends of their ranges; sums and bias are i32."""
    (x, weight, *bias), attributes = _conv(draw, dtype)
    other = draw(st.sampled_from(SHORT_INTEGERS))
    operands = [values(draw, dtype, x.shape), values(draw, other, weight.shape)]
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    attributes |= {"widening": True, "padding_value": draw(st.integers(low, high))}
    return [*operands, *(values(draw, "i32", each.shape) for each in bias)], attributes


def _widened(
    x: Array, weight: Array, *bias: Array, widening: bool, padding_value: int, **lists: Any
) -> Array:
    """Of whole numbers, whose low 32 bits are the sums."""
    assert widening
    low, high = lists.pop("low"), lists.pop("high")
    around = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    padded = np.pad(x, around, constant_values=padding_value)
    none = {"low": [0] * len(low), "high": [0] * len(low)}
    return _convolved(*(each.astype(np.int64) for each in (padded, weight, *bias)), **none, **lists).astype(
        np.int32
    )


def _conv_transpose(draw: Draw, dtype: str) -> OperandsAndAttrs:
    groups, taps, lists = _shared(draw)
    channels, outputs = (draw(st.integers(1, 3)) for _ in range(2))
    lists["extra"] = [draw(st.integers(0, stride - 1)) for stride in lists["strides"]]
    sizes = []
    for size, dilation, stride, low, high in zip(
        taps, *(lists[name] for name in ("dilations", "strides", "low", "high")), strict=True
    ):
        least = -(-(low + high - (size - 1) * dilation) // stride) + 1
        sizes.append(max(least, 1) + draw(st.integers(0, 3)))
    x = values(draw, dtype, [draw(st.integers(1, 2)), channels * groups, *sizes], special=False)
    weight = values(draw, dtype, [channels * groups, outputs, *taps], special=False)
    return [x, weight, *_bias(draw, dtype, outputs * groups)], {**lists, "groups": groups}


def _bias(draw: Draw, dtype: str, outputs: int) -> list[Array]:
    return [values(draw, dtype, [outputs], special=False)] if draw(st.booleans()) else []


def _convolved(
    x: Array,
    weight: Array,
    *bias: Array,
    low: Sequence[int],
    high: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Array:
    """Each output is one sum, over the elements of its window that are there."""
    taps, sizes = weight.shape[2:], x.shape[2:]
    lists = zip(sizes, taps, strides, low, high, dilations, strict=True)
    counts = [(s + lo + hi - (k - 1) * d - 1) // step + 1 for s, k, step, lo, hi, d in lists]
    result = np.zeros((len(x), len(weight), *counts), x.dtype)
    inputs, outputs = x.shape[1] // groups, len(weight) // groups
    for index in np.ndindex(*counts):
        for tap in np.ndindex(*taps):
            source = [
                o * s + k * d - lo for o, s, k, d, lo in zip(index, strides, tap, dilations, low, strict=True)
            ]
            if all(0 <= at < size for at, size in zip(source, sizes, strict=True)):
                for m in range(len(weight)):
                    first = m // outputs * inputs
                    seen = x[(slice(None), slice(first, first + inputs), *source)]
                    result[(slice(None), m, *index)] += (seen * weight[(m, slice(None), *tap)]).sum(
                        1, dtype=x.dtype
                    )
    return result + bias[0].reshape(-1, *[1] * len(taps)) if bias else result


def spread(
    x: Array,
    weight: Array,
    *bias: Array,
    low: Sequence[int],
    high: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    extra: Sequence[int],
) -> Array:
    """Each input goes where its window lies in the result, if that is not cut off."""
    taps, sizes = weight.shape[2:], x.shape[2:]
    lists = zip(sizes, taps, strides, low, high, dilations, extra, strict=True)
    counts = [(s - 1) * step + (k - 1) * d + 1 - lo - hi + e for s, k, step, lo, hi, d, e in lists]
    outputs, inputs = weight.shape[1], x.shape[1] // groups
    result = np.zeros((len(x), outputs * groups, *counts), x.dtype)
    for index in np.ndindex(*sizes):
        for tap in np.ndindex(*taps):
            target = [
                o * s + k * d - lo for o, s, k, d, lo in zip(index, strides, tap, dilations, low, strict=True)
            ]
            if all(0 <= at < size for at, size in zip(target, counts, strict=True)):
                for c in range(x.shape[1]):
                    first = c // inputs * outputs
                    there = (slice(None), slice(first, first + outputs), *target)
                    result[there] += x[(slice(None), c, *index)][:, None] * weight[(c, slice(None), *tap)]
    return result + bias[0].reshape(-1, *[1] * len(taps)) if bias else result


ROWS = (
    Row(logical.ConvOp, _conv, _convolved, NUMBERS),
    Row(logical.ConvOp, _widening_conv, _widened, SHORT_INTEGERS, name="widening conv"),
    Row(logical.ConvTransposeOp, _conv_transpose, spread, NUMBERS),
)
