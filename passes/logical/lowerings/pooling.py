"""Poolings as a border around the operand, its windows, and a reduction of each."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS, MOST_TAPS, int_values
from aicf.dialects.types import ElementType, TensorInfo, element_named, element_of, tensor_info
from aicf.dialects.window_counts import elements_found, found_by_all, found_span
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.support.writing import OpWriter


def _lowest(element: ElementType) -> float:
    """What is smaller than every number of a type, or the smallest of them."""
    return -np.inf if element.is_float else int(np.iinfo(element.dtype).min)


def _windows(lower: Lowering, op: logical.PoolOp, x: SSAValue, beyond: float) -> SSAValue:
    """``[.., O1..Ok, K1..Kk]`` of x, whose last dims are the operand's spatial ones; ``beyond`` lies around."""
    windows, info = op.windows, tensor_info(x.type)
    front = [0] * (info.rank - len(windows))
    low, high = [*front, *(w.low for w in windows)], [*front, *(w.reach for w in windows)]
    if any(low) or any(high):
        value = lower.add(logical.ConstantOp(beyond, info.with_sizes([])), "beyond")
        x = lower.add(logical.PadOp(x, value, low, high), "padded")
    sizes, strides, dilations = zip(*((w.size, w.stride, w.dilation) for w in windows), strict=True)
    return lower.add(logical.WindowOp(x, sizes, strides, dilations), "windows")


def _inner(op: logical.PoolOp) -> range:
    """The dims of a window's elements."""
    rank = op.info.rank
    return range(rank, rank + len(op.windows))


def _max_pool(lower: Lowering, op: logical.MaxPoolOp) -> SSAValue:
    """The largest of what lies in the window and is not padding."""
    elements = _windows(lower, op, op.operand, _lowest(op.info.element))
    return lower.add(logical.ReduceMaxOp(elements, _inner(op)), "max")


def _max_pool_indices(lower: Lowering, op: logical.MaxPoolIndicesOp) -> SSAValue:
    """The smallest position that holds the largest element, or a NaN if there is one; padding has no place.

    Of a short window of floats it follows from which of its elements that is.
    """
    info = tensor_info(op.operand.type)
    if info.element.is_float and prod(window.size for window in op.windows) <= MOST_TAPS:
        return _indices_of_taps(lower, op)
    count = prod(info.shape[2:])
    elements, found = _largest_elements(lower, op)
    sizes = tensor_info(elements.type).sizes
    element = element_named("i32" if count < 1 << 31 else "i64")
    coordinate, inside = _coordinates(
        lower, op, lambda axis: lower.add(logical.IotaOp(axis, sizes, element), "number")
    )
    least = _first(lower, op, found, inside, coordinate, count)
    return lower.cast(least, op.info.element, "i64")


def _indices_of_taps(lower: Lowering, op: logical.MaxPoolIndicesOp) -> SSAValue:
    """Where the largest elements lie, which are elements of their windows that are known by number."""
    windows, whole = op.windows, tensor_info(op.operand.type).shape[2:]
    lists = (int_values(getattr(op, name)) for name in ("sizes", "strides", "dilations", "low", "high"))
    found = logical.MaxPoolTapsOp(op.operand, *lists, ceil_mode=op.ceil_mode is not None)
    taps = lower.cast(
        lower.add(found, "taps"), element_named("i32" if prod(whole) < 1 << 31 else "i64"), "tap"
    )
    rest, total = taps, None
    for axis, window in enumerate(windows):
        along, after = rest, prod(each.size for each in windows[axis + 1 :])
        if axis + 1 < len(windows):
            along = lower.apply(logical.DivOp, rest, after, name="along")
            rest = lower.apply(logical.SubOp, rest, lower.apply(logical.MulOp, along, after), name="rest")
        start = lower.add(logical.IotaOp(2 + axis, op.info.sizes, element_of(taps.type)), "window")
        start = lower.apply(
            logical.SubOp, lower.apply(logical.MulOp, start, window.stride), window.low, name="start"
        )
        place = lower.apply(
            logical.AddOp, start, lower.apply(logical.MulOp, along, window.dilation), name="place"
        )
        if total is not None:
            place = lower.apply(
                logical.AddOp, lower.apply(logical.MulOp, total, window.whole), place, name="place"
            )
        total = place
    assert total is not None
    finds_none = logical.CompareOp("eq", taps, lower.splat(prod(each.size for each in windows), taps, "taps"))
    none = lower.splat(prod(whole), total, "none")
    index = lower.apply(logical.SelectOp, lower.add(finds_none, "none"), none, total, name="index")
    return lower.cast(index, op.info.element, "i64")


def _max_pool_taps(lower: Lowering, op: logical.MaxPoolTapsOp) -> SSAValue:
    """The first element of a window that holds the largest, or a NaN if there is one; padding is none."""
    elements, found = _largest_elements(lower, op)
    sizes = tensor_info(elements.type).sizes
    element = element_named("i32")
    _, inside = _coordinates(
        lower, op, lambda axis: lower.add(logical.IotaOp(axis, sizes, element), "number")
    )
    number: SSAValue | None = None
    for axis, window in zip(_inner(op), op.windows, strict=True):
        own = lower.add(logical.IotaOp(axis, sizes, element), "tap")
        if number is not None:
            own = lower.apply(logical.AddOp, lower.apply(logical.MulOp, number, window.size), own, name="tap")
        number = own
    assert number is not None
    return _first(lower, op, found, inside, number, prod(window.size for window in op.windows))


def _largest_elements(lower: Lowering, op: logical.PoolOp) -> tuple[SSAValue, SSAValue]:
    """The elements of all windows, and which of them are as large as the largest, or NaN."""
    info = tensor_info(op.operand.type)
    elements = _windows(lower, op, op.operand, _lowest(info.element))
    sizes = tensor_info(elements.type).sizes
    largest = lower.add(logical.ReduceMaxOp(elements, _inner(op), keepdims=True), "max")
    spread = lower.broadcast(largest, range(len(sizes)), sizes, "largest")
    found = lower.add(logical.CompareOp("eq", elements, spread), "found")
    if info.element.is_float:
        missing = lower.add(logical.CompareOp("ne", elements, elements), "nan")
        found = lower.apply(logical.MaxOp, found, missing, name="or")
    return elements, found


def _first(
    lower: Lowering,
    op: logical.PoolOp,
    found: SSAValue,
    inside: SSAValue | None,
    number: SSAValue,
    none: int,
) -> SSAValue:
    """The least number of an element that is found and lies inside; `none` where there is none."""
    if inside is not None:
        found = lower.apply(logical.AndOp, found, inside, name="here")
    candidate = lower.apply(logical.SelectOp, found, number, lower.splat(none, number, "none"))
    return lower.add(logical.ReduceMinOp(candidate, _inner(op)), "first")


def _coordinates(
    lower: Lowering, op: logical.PoolOp, number: Callable[[int], SSAValue]
) -> tuple[SSAValue, SSAValue | None]:
    """Where each element of each window lies in the operand, in row-major order, and whether it does; None if all do.

    Args:
        number: The coordinate along an axis of the windows.
    """
    rank = op.info.rank
    total: SSAValue | None = None
    inside: SSAValue | None = None
    for dim, window in enumerate(op.windows):
        start = lower.apply(logical.MulOp, number(2 + dim), window.stride, name="start")
        step = lower.apply(logical.MulOp, number(rank + dim), window.dilation, name="step")
        coordinate = lower.apply(logical.AddOp, start, step, name="place")
        if window.low or window.reach:
            coordinate = lower.apply(logical.SubOp, coordinate, window.low, name="place")
            first = lower.add(
                logical.CompareOp("ge", coordinate, lower.splat(0, coordinate, "first")), "behind"
            )
            last = lower.add(
                logical.CompareOp("lt", coordinate, lower.splat(window.whole, coordinate, "end")), "before"
            )
            for bound in (first, last):
                inside = bound if inside is None else lower.apply(logical.AndOp, inside, bound, name="inside")
        if total is not None:
            rows = lower.apply(logical.MulOp, total, window.whole, name="rows")
            coordinate = lower.apply(logical.AddOp, rows, coordinate, name="place")
        total = coordinate
    assert total is not None
    return total, inside


def _avg_pool(lower: Lowering, op: logical.AvgPoolOp) -> SSAValue:
    """The sum over the number of elements found. They are widened in their windows: a border is as narrow as they."""
    elements = lower.widen(_windows(lower, op, op.operand, 0.0))
    total = lower.add(logical.ReduceSumOp(elements, _inner(op)), "sum")
    return lower.add(logical.DivOp(total, found_by_windows(lower, op, total)), "mean")


def found_by_windows(lower: OpWriter, op: logical.AvgPoolOp, like: SSAValue) -> SSAValue:
    """How many elements each window finds, in the shape and type of `like`: one number, or a product of one for each
    row, column and so on."""
    info = tensor_info(like.type)
    padding = op.count_include_pad is not None
    by_all = [found_by_all(window, padding=padding) for window in op.windows]
    uniform = prod(number for number in by_all if number is not None)
    product: SSAValue | None = None
    for axis, (window, number) in enumerate(zip(op.windows, by_all, strict=True), 2):
        if number is not None:
            continue
        row = _row_found(lower, window, padding, uniform if product is None else 1, info)
        spread = lower.broadcast(row, [axis], info.sizes, "spread")
        product = spread if product is None else lower.apply(logical.MulOp, product, spread, name="found")
    return lower.splat(uniform, like, "found") if product is None else product


def _row_found(
    lower: OpWriter, window: logical.PoolWindow, padding: bool, factor: int, info: TensorInfo
) -> SSAValue:
    """What each window along a dimension finds, times a factor, in the element type of ``info``.

    A vector that is too long for a constant is computed: the steps before the end less those before the first place.
    """
    if window.count <= MAX_CONSTANT_ELEMENTS:
        numbers = elements_found(window, padding=padding).astype(info.element.dtype) * factor
        return lower.add(logical.ConstantOp(numbers, info.with_sizes([window.count])), "found")
    number = lower.add(logical.IotaOp(0, [window.count], element_named("i64")), "number")
    first, end = found_span(window, padding)
    start = lower.apply(logical.MulOp, number, window.stride, name="start")

    def steps_before(bound: int) -> SSAValue:
        away = lower.apply(logical.SubOp, lower.splat(bound + window.low, start, "bound"), start, name="away")
        steps = lower.apply(logical.MaxOp, away, 0, name="steps")
        if window.dilation != 1:
            rounded = lower.apply(logical.AddOp, steps, window.dilation - 1, name="rounded")
            steps = lower.apply(logical.DivOp, rounded, window.dilation, name="steps")
        return lower.apply(logical.MinOp, steps, window.size, name="most")

    found = lower.apply(logical.SubOp, steps_before(end), steps_before(first), name="found")
    return lower.apply(logical.MulOp, lower.cast(found, info.element, "row"), factor, name="row")


def _lp_pool(lower: Lowering, op: logical.LpPoolOp) -> SSAValue:
    """The p-th root of the sum of the p-th powers of the magnitudes."""
    p = op.p.value.data
    magnitude = lower.apply(logical.AbsOp, lower.widen(op.operand))
    power = magnitude if p == 1 else lower.apply(logical.PowOp, magnitude, float(p))
    total = lower.add(logical.ReduceSumOp(_windows(lower, op, power, 0.0), _inner(op)), "sum")
    match p:
        case 1:
            return total
        case 2:
            return lower.apply(logical.SqrtOp, total)
        case _:
            return lower.apply(logical.PowOp, total, 1 / p, name="root")


FORMULAS: Formulas = {
    logical.MaxPoolOp: _max_pool,
    logical.MaxPoolIndicesOp: _max_pool_indices,
    logical.MaxPoolTapsOp: _max_pool_taps,
    logical.AvgPoolOp: _avg_pool,
    logical.LpPoolOp: _lp_pool,
}
