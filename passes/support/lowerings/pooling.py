"""Poolings as a border around the operand, its windows, and a reduction of each."""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named, tensor, tensor_info
from aicf.passes.support.lowerings.base import Formulas, Lowering


def _lowest(element: ElementType) -> float:
    """What is smaller than every number of a type, or the smallest of them."""
    return -np.inf if element.is_float else int(np.iinfo(element.dtype).min)


def _windows(lower: Lowering, op: logical.PoolOp, x: SSAValue, beyond: float, name: str = "") -> SSAValue:
    """``[.., O1..Ok, K1..Kk]`` of x, whose last dims are the operand's spatial ones; ``beyond`` lies around."""
    windows, info = op.windows, tensor_info(x.type)
    front = [0] * (info.rank - len(windows))
    low, high = [*front, *(w.low for w in windows)], [*front, *(w.reach for w in windows)]
    if any(low) or any(high):
        value = lower.add(logical.ConstantOp(beyond, info.with_sizes([])), f"{name}beyond")
        x = lower.add(logical.PadOp(x, value, low, high), f"{name}padded")
    sizes, strides, dilations = zip(*((w.size, w.stride, w.dilation) for w in windows), strict=True)
    return lower.add(logical.WindowOp(x, sizes, strides, dilations), f"{name}windows")


def _inner(op: logical.PoolOp) -> range:
    """The dims of a window's elements."""
    rank = op.info.rank
    return range(rank, rank + len(op.windows))


def _max_pool(lower: Lowering, op: logical.MaxPoolOp) -> SSAValue:
    """The largest of what lies in the window and is not padding."""
    elements = _windows(lower, op, op.operand, _lowest(op.info.element))
    return lower.add(logical.ReduceMaxOp(elements, _inner(op)), "max")


def _max_pool_indices(lower: Lowering, op: logical.MaxPoolIndicesOp) -> SSAValue:
    """The smallest place that holds the largest element, or a NaN if there is one; padding has no place."""
    info = tensor_info(op.operand.type)
    spatial = info.shape[2:]
    count = prod(spatial)
    elements = _windows(lower, op, op.operand, _lowest(info.element))
    sizes = tensor_info(elements.type).sizes
    largest = lower.add(logical.ReduceMaxOp(elements, _inner(op), keepdims=True), "max")
    spread = lower.broadcast(largest, range(len(sizes)), sizes, "largest")
    found = lower.add(logical.CompareOp("eq", elements, spread), "found")
    if info.element.is_float:
        missing = lower.add(logical.CompareOp("ne", elements, elements), "nan")
        found = lower.apply(logical.MaxOp, found, missing, name="or")
    element = element_named("i32" if count < 1 << 31 else "i64")
    numbers = lower.add(logical.IotaOp(0, [count], element), "numbers")
    places = _windows(lower, op, lower.add(logical.ReshapeOp(numbers, spatial), "places"), count, "places.")
    own = range(2, len(sizes))
    candidate = lower.apply(
        logical.SelectOp,
        found,
        lower.broadcast(places, own, sizes, "place"),
        lower.add(logical.ConstantOp(count, tensor(sizes, element)), "none"),
    )
    least = lower.add(logical.ReduceMinOp(candidate, _inner(op)), "first")
    return lower.cast(least, op.info.element, "i64")


def _avg_pool(lower: Lowering, op: logical.AvgPoolOp) -> SSAValue:
    """The sum over the number of elements found."""
    elements = _windows(lower, op, lower.widen(op.operand), 0.0)
    total = lower.add(logical.ReduceSumOp(elements, _inner(op)), "sum")
    return lower.add(logical.DivOp(total, _found(lower, op, total)), "mean")


def _found(lower: Lowering, op: logical.AvgPoolOp, like: SSAValue) -> SSAValue:
    """How many elements each window finds: one number, or a product of one for each row, column and so on."""
    info = tensor_info(like.type)
    counts = [w.found(padding=op.count_include_pad is not None) for w in op.windows]
    uniform = prod(along[0] for along in counts if len(set(along)) == 1)
    product: SSAValue | None = None
    for axis, along in enumerate(counts, 2):
        if len(set(along)) == 1:
            continue
        factor = uniform if product is None else 1
        numbers = np.array(along, info.element.dtype) * factor
        row = lower.add(logical.ConstantOp(numbers, info.with_sizes([len(along)])), "found")
        spread = lower.broadcast(row, [axis], info.sizes, "spread")
        product = spread if product is None else lower.apply(logical.MulOp, product, spread, name="found")
    return lower.splat(uniform, like, "found") if product is None else product


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
    logical.AvgPoolOp: _avg_pool,
    logical.LpPoolOp: _lp_pool,
}
