"""Ops that move, repeat, pick or convert elements, index by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor
from tests.support.op_rows.row import (
    ALL,
    SIZES,
    Array,
    Draw,
    OperandsAndAttrs,
    Row,
    axis_of,
    is_float,
    shape,
    values,
)


def _reshape(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 0))
    left, sizes = x.size, []
    for _ in range(draw(st.integers(0, 3))):
        sizes.append(draw(st.sampled_from([size for size in range(1, left + 1) if left % size == 0])))
        left //= sizes[-1]
    return [x], {"sizes": [*sizes, left]}


def _as_it_is(draw: Draw, dtype: str) -> OperandsAndAttrs:
    return [values(draw, dtype, shape(draw, 0))], {}


def _transpose(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    return [x], {"permutation": list(draw(st.permutations(range(x.ndim))))}


def _broadcast(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Any of the result's dimensions, in order, of size 1 or whole."""
    sizes = shape(draw)
    dimensions = sorted(draw(st.sets(axes(sizes))))
    own = [1 if draw(st.booleans()) else sizes[axis] for axis in dimensions]
    return [values(draw, dtype, own)], {"dimensions": dimensions, "sizes": list(sizes)}


def axes(sizes: Sequence[int]) -> st.SearchStrategy[int]:
    return st.integers(0, len(sizes) - 1)


def _slice(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    starts = [draw(st.integers(0, size - 1)) for size in x.shape]
    strides = [draw(st.integers(1, 3)) for _ in x.shape]
    most = [
        (size - start - 1) // stride + 1 for size, start, stride in zip(x.shape, starts, strides, strict=True)
    ]
    return [x], {
        "starts": starts,
        "sizes": [draw(st.integers(1, count)) for count in most],
        "strides": strides,
    }


def _window(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Windows along up to three dimensions, which overlap, touch or leave gaps."""
    sizes = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    strides, dilations = ([draw(st.integers(1, 3)) for _ in sizes] for _ in range(2))
    lead = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]
    whole = [
        (size - 1) * dilation + 1 + draw(st.integers(0, 6))
        for size, dilation in zip(sizes, dilations, strict=True)
    ]
    x = values(draw, dtype, [*lead, *whole])
    return [x], {"sizes": sizes, "strides": strides, "dilations": dilations}


def _concat(draw: Draw, dtype: str) -> OperandsAndAttrs:
    sizes = list(shape(draw))
    axis = axis_of(draw, sizes)
    parts = [
        values(draw, dtype, [*sizes[:axis], size, *sizes[axis + 1 :]])
        for size in draw(st.lists(st.sampled_from(SIZES[:5]), min_size=1, max_size=3))
    ]
    return parts, {"axis": axis}


def _select(draw: Draw, dtype: str) -> OperandsAndAttrs:
    sizes = shape(draw, 0)
    return [values(draw, "i1", sizes), *(values(draw, dtype, sizes) for _ in range(2))], {}


def _constant(draw: Draw, dtype: str) -> OperandsAndAttrs:
    sizes = shape(draw, 0)
    splat = draw(st.booleans())
    return [], {"value": values(draw, dtype, () if splat else sizes), "type_": tensor(sizes, dtype)}


def _cast(draw: Draw, dtype: str) -> OperandsAndAttrs:
    return [values(draw, dtype, shape(draw, 0))], {"element": draw(st.sampled_from(ALL))}


def _sliced(x: Array, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Array:
    for axis, (start, size, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
        x = np.take(x, [start + stride * number for number in range(size)], axis)
    return x


def windows_of(x: Array, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Element by element, by the definition."""
    lead, whole = x.shape[: x.ndim - len(sizes)], x.shape[x.ndim - len(sizes) :]
    last = [(size - 1) * dilation for size, dilation in zip(sizes, dilations, strict=True)]
    counts = [len(range(0, size - end, step)) for size, end, step in zip(whole, last, strides, strict=True)]
    result = np.empty([*lead, *counts, *sizes], x.dtype)
    for index in np.ndindex(*counts, *sizes):
        window, inside = index[: len(counts)], index[len(counts) :]
        source = [o * s + k * d for o, s, k, d in zip(window, strides, inside, dilations, strict=True)]
        result[(..., *index)] = x[(..., *source)]
    return result


def _repeated(x: Array, dimensions: Sequence[int], sizes: Sequence[int]) -> Array:
    result = np.empty(sizes, x.dtype)
    for index in np.ndindex(*sizes):
        own = [index[axis] if size > 1 else 0 for axis, size in zip(dimensions, x.shape, strict=True)]
        result[index] = x[tuple(own)]
    return result


def _picked(condition: Array, on_true: Array, on_false: Array) -> Array:
    pairs = zip(condition.flat, on_true.flat, on_false.flat, strict=True)
    return np.array([yes if holds else no for holds, yes, no in pairs], on_true.dtype).reshape(
        condition.shape
    )


def _other_type(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """No NaN: which of them a copy gives is the target's."""
    size, x = element_named(dtype).bytes, values(draw, dtype, shape(draw))
    return [np.where(np.isnan(x), np.ones_like(x), x) if is_float(x) else x], {
        "element": draw(st.sampled_from(SAME_SIZE[size]))
    }


def _reread(x: Array, element: str) -> Array:
    target = element_named(element)
    raw = np.frombuffer(x.tobytes(), np.uint8 if target.kind == "bool" else target.dtype)
    return raw.reshape(x.shape) != 0 if target.kind == "bool" else raw.reshape(x.shape)


SAME_SIZE = {8: ("f64", "i64"), 4: ("f32", "i32"), 2: ("f16", "bf16", "i16"), 1: ("i8", "u8", "i1")}
"""Types by their bytes."""


def _converted(x: Array, element: str) -> Array:
    """Each element by Python's arithmetic: floats to integers cut off and saturate, integers wrap."""
    target = element_named(element)
    if target.kind == "bool":
        return x != 0
    if target.is_float:
        return x.astype(np.float64).astype(target.dtype).astype(np.float64)
    limits = np.iinfo(target.dtype)
    numbers = [_whole(value, int(limits.min), int(limits.max)) for value in x.ravel().tolist()]
    return np.array(numbers, target.dtype).reshape(x.shape)


def _whole(value: float | int, low: int, high: int) -> int:
    if isinstance(value, int):
        return (value - low) % (high - low + 1) + low
    if math.isfinite(value):
        return min(max(int(value), low), high)
    return 0 if math.isnan(value) else (high if value > 0 else low)


ROWS = (
    Row(
        logical.ReshapeOp, _reshape, lambda x, sizes: np.array(x.tolist(), x.dtype).reshape(sizes), ALL, True
    ),
    Row(logical.DetachOp, _as_it_is, lambda x: x, ALL, True),
    Row(logical.TransposeOp, _transpose, lambda x, permutation: x.transpose(permutation), ALL, True),
    Row(logical.BroadcastOp, _broadcast, _repeated, ALL, True),
    Row(logical.SliceOp, _slice, _sliced, ALL, True),
    Row(logical.WindowOp, _window, windows_of, ALL, True),
    Row(
        lambda *parts, axis: logical.ConcatOp(parts, axis),
        _concat,
        lambda *parts, axis: np.concatenate(parts, axis),
        *(ALL, True, "concat"),
    ),
    Row(logical.SelectOp, _select, _picked, ALL, True),
    Row(
        logical.ConstantOp,
        _constant,
        lambda value, type_: np.broadcast_to(value, type_.get_shape()),
        ALL,
        True,
    ),
    Row(logical.CastOp, _cast, _converted, ALL, True),
    Row(
        logical.BitcastOp,
        _other_type,
        _reread,
        tuple(name for names in SAME_SIZE.values() for name in names),
        True,
        typed=True,
    ),
)
