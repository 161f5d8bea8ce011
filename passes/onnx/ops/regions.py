"""ONNX ops that give regions of an image one size, by points read in them or by their largest elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, element_of, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.taps import Tap, weighted
from aicf.semantics import composite_element

# Points


@row("RoiAlign", since=10)
def _roi_align(node: Node) -> Result:
    """Cells of regions, each the mean or the largest of points read between the elements."""
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    mode = node.attributes.string("coordinate_transformation_mode", default)
    if mode not in ("half_pixel", "output_half_pixel"):
        raise node.invalid(f"coordinate_transformation_mode is {mode}; it is half_pixel or output_half_pixel")
    points = node.attributes.int("sampling_ratio", 0)
    if points < 1:
        raise node.unsupported(
            "sampling_ratio 0 takes a number of points that follows from each region; give it a number"
        )
    batch, channels, height, width = node.shape(0)
    element = node.element(0)
    wide = composite_element(element)
    rois = node.cast(node.operand(1), wide, "widen")
    cells = node.attributes.int("output_height", 1), node.attributes.int("output_width", 1)
    rows, columns = (
        _points(node, rois, coordinate, count, points, size, shifted=mode == "half_pixel")
        for coordinate, count, size in ((1, cells[0], height), (0, cells[1], width))
    )
    planes = node.reshape(
        node.transpose(node.operand(0), [1, 0, 2, 3], "channels"), [channels, batch * height * width]
    )
    first = node.apply(
        logical.MulOp, node.cast(node.operand(2), element_named("i64"), "image"), height * width
    )
    regions = node.shape(1)[0]
    grid = [regions, cells[0] * points, cells[1] * points]
    origin = node.broadcast(first, [0], grid, "origin")

    def read(index: SSAValue) -> SSAValue:
        coordinate = node.apply(logical.AddOp, index, origin, name="place")
        return node.cast(node.add(logical.GatherOp(planes, coordinate, 1), "read"), wide, "widen")

    spread = [
        [_spread_tap(node, tap, dims, grid) for tap in taps]
        for taps, dims in ((rows, [0, 1]), (columns, [0, 2]))
    ]
    combined = _combined(node, spread, width, read, [channels, regions, cells[0], points, cells[1], points])
    turned = node.transpose(combined, [1, 0, 2, 3], "regions")
    return node.cast(turned, element, "narrow")


def _spread_tap(node: Node, tap: Tap, dims: Sequence[int], sizes: Sequence[int]) -> Tap:
    weight = None if tap.weight is None else node.broadcast(tap.weight, dims, sizes, "spread")
    return Tap(node.broadcast(tap.index, dims, sizes, "spread"), weight, None)


def _combined(
    node: Node,
    taps: Sequence[Sequence[Tap]],
    width: int,
    read: Callable[[SSAValue], SSAValue],
    sizes: Sequence[int],
) -> SSAValue:
    """``[C, R, rows, columns]``: the mean of a cell's points, or the largest of all parts that they are sums of."""
    match node.attributes.string("mode", "avg"):
        case "avg":
            total = weighted(node, taps, [1, width], read, [1, 2, 3])
            return node.apply(logical.ReduceMeanOp, node.reshape(total, sizes, "points"), axes=[3, 5])
        case "max":
            largest: SSAValue | None = None
            for pair in product(*taps):
                part = weighted(node, [[tap] for tap in pair], [1, width], read, [1, 2, 3])
                largest = part if largest is None else node.apply(logical.MaxOp, largest, part)
            assert largest is not None
            return node.apply(logical.ReduceMaxOp, node.reshape(largest, sizes, "points"), axes=[3, 5])
        case other:
            raise node.invalid(f"mode is {other}; it is avg or max")


def _points(
    node: Node, rois: SSAValue, coordinate: int, cells: int, points: int, size: int, *, shifted: bool
) -> list[Tap]:
    """``[R, cells * points]``: the elements before and after the points of each cell along one dimension."""
    regions, element = tensor_info(rois.type).shape[0], element_of(rois.type)
    scale = node.attributes.float("spatial_scale", 1.0)

    def border(column: int) -> SSAValue:
        part = node.slice(rois, [0, column], [regions, 1], suffix="border")
        scaled = node.apply(logical.MulOp, node.reshape(part, [regions], "border"), scale, name="scaled")
        return node.apply(logical.SubOp, scaled, 0.5, name="shifted") if shifted else scaled

    start = border(coordinate)
    extent = node.apply(logical.SubOp, border(coordinate + 2), start, name="extent")
    if not shifted:
        extent = node.apply(logical.MaxOp, extent, 1.0, name="extent")
    step = node.apply(logical.DivOp, extent, float(cells * points), name="step")
    sizes = [regions, cells * points]
    number = node.add(logical.IotaOp(1, sizes, element), "number")
    middle = node.apply(logical.AddOp, number, 0.5, name="middle")
    along = node.apply(logical.MulOp, middle, node.broadcast(step, [0], sizes, "spread"), name="along")
    x = node.apply(logical.AddOp, along, node.broadcast(start, [0], sizes, "spread"), name="point")
    return _between(node, x, size)


def _between(node: Node, x: SSAValue, size: int) -> list[Tap]:
    """The elements below and above; at the border alone up to one element beyond it, and nothing farther out."""
    last = size - 1.0
    inside = node.apply(
        logical.AndOp,
        node.add(logical.CompareOp("ge", x, node.splat(-1.0, x)), "behind"),
        node.add(logical.CompareOp("le", x, node.splat(float(size), x)), "before"),
        name="inside",
    )
    clamped = node.add(logical.ClampOp(x, 0.0, last), "clamped")
    below = node.apply(logical.FloorOp, clamped)
    above = node.apply(logical.MinOp, node.apply(logical.AddOp, below, 1.0), last, name="above")
    part = node.apply(logical.SubOp, clamped, below, name="part")
    rest = node.apply(logical.SubOp, node.splat(1.0, part), part, name="rest")
    zero = node.splat(0.0, part)
    i64 = element_named("i64")
    return [
        Tap(node.cast(index, i64, "index"), node.add(logical.SelectOp(inside, weight, zero), "weight"), None)
        for index, weight in ((below, rest), (above, part))
    ]


# Whole elements


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
    coordinate = node.add(logical.IotaOp(2, [regions, cells, size], element), "place")
    return node.apply(
        logical.AndOp,
        node.add(logical.CompareOp("ge", coordinate, low), "behind"),
        node.add(logical.CompareOp("lt", coordinate, high), "before"),
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
