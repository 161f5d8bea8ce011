"""ONNX ops that combine windows, regions or whole planes to one element, and the way back of a maximum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.support.onnx_ops.base import Node, Result, row
from aicf.passes.support.onnx_ops.sliding import explicit_padding, sliding


def _spatial(node: Node) -> tuple[int, ...]:
    """The sizes behind batch and channels of operand 0."""
    shape = node.shape(0)
    if len(shape) < 3:
        raise node.invalid(
            f"operand 0 has rank {len(shape)}; it is [N, C, S1..Sk] with one spatial dimension or more"
        )
    return shape[2:]


def _pool(
    node: Node, op_class: Callable[..., logical.PoolOp], *operands: SSAValue, **more: int | bool
) -> SSAValue:
    """A pooling with the windows of the node."""
    windows = sliding(node, _spatial(node))
    return node.apply(
        partial(op_class, **more),
        *operands,
        sizes=windows.sizes,
        strides=windows.strides,
        dilations=windows.dilations,
        low=windows.low,
        high=windows.high,
        ceil_mode=bool(node.attributes.int("ceil_mode", 0)),
    )


# Windows


@row("MaxPool")
def _max_pool(node: Node) -> Result:
    """The largest of each window, and where it lies."""
    x = node.operand(0)
    largest = _pool(node, logical.MaxPoolOp, x)
    return [largest, _places(node, x) if node.wants(1) else None]


def _places(node: Node, x: SSAValue) -> SSAValue:
    """Places in the whole tensor, in row-major order, or with the spatial dimensions in column-major order."""
    spatial = _spatial(node)
    place = _pool(node, logical.MaxPoolIndicesOp, x)
    info, plane = tensor_info(place.type), prod(spatial)
    if node.attributes.int("storage_order", 0):
        place = _column_major(node, place, spatial)
    batch, channel = (
        node.add(logical.IotaOp(axis, info.shape, info.element), name) for axis, name in ((0, "n"), (1, "c"))
    )
    planes = node.apply(
        logical.AddOp, node.apply(logical.MulOp, batch, node.shape(0)[1]), channel, name="plane"
    )
    return node.apply(logical.AddOp, place, node.apply(logical.MulOp, planes, plane), name="places")


def _column_major(node: Node, place: SSAValue, spatial: tuple[int, ...]) -> SSAValue:
    """A row-major place counted with the first dimension innermost."""
    total: SSAValue | None = None
    for axis, size in enumerate(spatial):
        along = node.apply(logical.FloorDivOp, place, prod(spatial[axis + 1 :]))
        inside = node.apply(logical.ModOp, along, size)
        step = node.apply(logical.MulOp, inside, prod(spatial[:axis]))
        total = step if total is None else node.apply(logical.AddOp, total, step)
    assert total is not None
    return total


@row("AveragePool")
def _average_pool(node: Node) -> Result:
    """The mean of each window."""
    included = bool(node.attributes.int("count_include_pad", 0))
    return _pool(node, logical.AvgPoolOp, node.operand(0), count_include_pad=included)


@row("LpPool", since=2)
def _lp_pool(node: Node) -> Result:
    """The p-norm of each window."""
    return _pool(node, logical.LpPoolOp, node.operand(0), p=node.attributes.int("p", 2))


# Planes


@row("GlobalMaxPool")
def _global_max_pool(node: Node) -> Result:
    """The largest of each plane."""
    return node.apply(logical.ReduceMaxOp, node.operand(0), axes=_plane(node), keepdims=True)


@row("GlobalAveragePool")
def _global_average_pool(node: Node) -> Result:
    """The mean of each plane."""
    return node.apply(logical.ReduceMeanOp, node.operand(0), axes=_plane(node), keepdims=True)


@row("GlobalLpPool", since=2)
def _global_lp_pool(node: Node) -> Result:
    """The p-norm of each plane: one window."""
    windows = list(_spatial(node))
    return node.apply(
        logical.LpPoolOp, node.operand(0), p=node.attributes.int("p", 2), sizes=windows, strides=windows
    )


def _plane(node: Node) -> range:
    return range(2, 2 + len(_spatial(node)))


# The way back


@row("MaxUnpool", since=9)
def _max_unpool(node: Node) -> Result:
    """Each element at its place in zeros; if the result is larger than what the windows cover, in its first corner."""
    shape = node.shape(0)
    kernel = node.attributes.ints("kernel_shape", None)
    spatial = _spatial(node)
    if kernel is None or len(kernel) != len(spatial):
        raise node.invalid(f"attribute kernel_shape is no list of {len(spatial)} integers")
    strides = node.attributes.ints("strides", [1] * len(spatial))
    low, high = explicit_padding(node, len(spatial))
    covered = [
        (size - 1) * stride + extent - before - behind
        for size, stride, extent, before, behind in zip(spatial, strides, kernel, low, high, strict=True)
    ]
    sizes = [*shape[:2], *covered]
    zeros = node.full(0, [prod(sizes)], node.element(0))
    places, values = (node.reshape(node.operand(index), [prod(shape)], "flat") for index in (1, 0))
    flat = node.add(logical.ScatterOp(zeros, places, values, "set"), "placed")
    placed = node.reshape(flat, sizes)
    wanted = node.ints(2, "output_shape") if node.has(2) else sizes
    behind = [size - own for size, own in zip(wanted, sizes, strict=True)]
    if not any(behind):
        return placed
    if min(behind) < 0:
        raise node.invalid(f"output_shape {wanted} is smaller than what the windows cover, {sizes}")
    zero = node.full(0, [], node.element(0))
    return node.apply(logical.PadOp, placed, zero, low=[0] * len(sizes), high=behind)


# Regions


@row("MaxRoiPool")
def _max_roi_pool(node: Node) -> Result:
    """The largest of each cell of a grid over each region, both rounded to whole elements; 0 of an empty cell."""
    cells = node.attributes.ints("pooled_shape", None)
    if cells is None or len(cells) != 2:
        raise node.invalid("attribute pooled_shape is no list of two integers")
    rois = node.operand(1)
    batch = node.cast(_column(node, rois, 0), element_named("i64"), "batch")
    images = node.add(logical.GatherOp(node.operand(0), batch, 0), "images")
    _, _, height, width = node.shape(0)
    columns = _inside(node, rois, (1, 3), cells[1], width)
    rows = _inside(node, rois, (2, 4), cells[0], height)
    narrow = _largest_inside(node, images, columns)
    turned = node.transpose(narrow, [0, 1, 3, 2], "turned")
    found = node.transpose(_largest_inside(node, turned, rows), [0, 1, 3, 2], "upright")
    empty = node.add(logical.CompareOp("eq", found, node.splat(-np.inf, found)), "empty")
    return node.add(logical.SelectOp(empty, node.splat(0, found), found), "found")


def _column(node: Node, rois: SSAValue, column: int) -> SSAValue:
    """One number of each region."""
    regions = tensor_info(rois.type).shape[0]
    return node.reshape(node.slice(rois, [0, column], [regions, 1], suffix="column"), [regions], "column")


def _inside(node: Node, rois: SSAValue, columns: tuple[int, int], cells: int, size: int) -> SSAValue:
    """``[R, cells, size]``: whether an element along one dimension lies in a cell of a region."""
    scale = node.attributes.float("spatial_scale", 1.0)
    regions, element = tensor_info(rois.type).shape[0], tensor_info(rois.type).element

    def rounded(column: int) -> SSAValue:
        scaled = node.apply(logical.MulOp, _column(node, rois, column), scale, name="scaled")
        return node.apply(logical.FloorOp, node.apply(logical.AddOp, scaled, 0.5), name="rounded")

    first, last = map(rounded, columns)
    extent = node.apply(logical.AddOp, node.apply(logical.SubOp, last, first), 1.0, name="extent")
    step = node.apply(logical.DivOp, node.apply(logical.MaxOp, extent, 1.0), float(cells), name="step")
    spread = [node.broadcast(value, [0], [regions, cells], "spread") for value in (first, step)]
    cell = node.add(logical.IotaOp(1, [regions, cells], element), "cell")

    def bound(number: SSAValue, to_whole: Callable[..., logical.LogicalOp], name: str) -> SSAValue:
        along = node.apply(to_whole, node.apply(logical.MulOp, number, spread[1]), name=name)
        own = node.apply(logical.AddOp, along, spread[0], name=name)
        return node.broadcast(own, [0, 1], [regions, cells, size], name)

    low = bound(cell, logical.FloorOp, "low")
    high = bound(node.apply(logical.AddOp, cell, 1.0, name="next"), logical.CeilOp, "high")
    place = node.add(logical.IotaOp(2, [regions, cells, size], element), "place")
    return node.apply(
        logical.AndOp,
        node.add(logical.CompareOp("ge", place, low), "behind"),
        node.add(logical.CompareOp("lt", place, high), "before"),
        name="inside",
    )


def _largest_inside(node: Node, x: SSAValue, inside: SSAValue) -> SSAValue:
    """``[R, C, S, L]`` and ``[R, cells, L]`` to ``[R, C, S, cells]``; what is smaller than all of an empty cell."""
    info, cells = tensor_info(x.type), tensor_info(inside.type).shape[1]
    regions, channels, others, size = info.shape
    sizes = [regions, channels, others, cells, size]
    elements = node.broadcast(x, [0, 1, 2, 4], sizes, "elements")
    mask = node.broadcast(inside, [0, 3, 4], sizes, "mask")
    kept = node.add(logical.SelectOp(mask, elements, node.splat(-np.inf, elements)), "kept")
    return node.add(logical.ReduceMaxOp(kept, [4]), "largest")
