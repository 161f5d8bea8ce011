"""ONNX ops that read planes at the coordinates of a grid, and that make one: GridSample and AffineGrid."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_of
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.taps import MODES, Coordinates, Tap, sampled
from aicf.semantics import composite_element


@row("GridSample", since=16)
def _grid_sample(node: Node) -> Result:
    """Elements of each plane at the coordinates of a grid, whose last coordinate is of the first dimension."""
    shape, grid = node.shape(0), node.shape(1)
    batch, channels, *spatial = shape
    if len(grid) != len(shape) or grid[-1] != len(spatial) or grid[0] != batch:
        raise node.invalid(f"the grid has shape {list(grid)} for an operand of {list(shape)}")
    mode = node.attributes.string("mode", "linear")
    padding = node.attributes.string("padding_mode", "zeros")
    if mode not in MODES or padding not in ("zeros", "border", "reflection"):
        raise node.invalid(
            f"mode is {mode} and padding_mode {padding}; they are nearest, linear or cubic, and "
            "zeros, border or reflection"
        )
    align = node.attributes.flag("align_corners")
    element = element_of(node.operand(0).type)
    wide = composite_element(element)
    x = node.reshape(node.operand(0), [batch, channels, prod(spatial)], "planes")
    coordinates = node.cast(node.operand(1), wide, "widen")
    count = prod(grid[1:-1])
    taps: list[list[Tap]] = []
    for dim, size in enumerate(spatial):
        along = Coordinates(node, size, align, padding)
        starts, sizes = [0] * (len(grid) - 1), [*grid[:-1], 1]
        part = node.slice(coordinates, [*starts, len(spatial) - 1 - dim], sizes, suffix="coordinate")
        taps.append(MODES[mode](along, along.from_unit(node.reshape(part, [batch, count], "coordinate"))))

    total = sampled(node, x, taps, spatial, wide)
    return node.reshape(node.cast(total, element, "narrow"), [batch, channels, *grid[1:-1]])


@row("AffineGrid", since=20)
def _affine_grid(node: Node) -> Result:
    """The coordinates that an affine map of coordinates from -1 to 1 gives: ``[N, S1..Sk, k]``."""
    theta, sizes = node.operand(0), node.ints(1, "size")
    batch, _, *spatial = sizes
    rank = len(spatial)
    if node.shape(0) != (batch, rank, rank + 1):
        raise node.invalid(f"theta has shape {list(node.shape(0))}, size is {sizes}")
    align = node.attributes.flag("align_corners")
    shape = [batch, *spatial, rank]

    def column(number: int) -> SSAValue:
        part = node.slice(theta, [0, 0, number], [batch, rank, 1], suffix="column")
        return node.broadcast(node.reshape(part, [batch, rank], "column"), [0, rank + 1], shape, "spread")

    total = column(rank)
    for number in range(rank):
        dim = rank - number  # the first coordinate is of the last dimension
        coordinate = _unit_coordinates(node, dim, shape, align, element_of(theta.type))
        total = node.apply(
            logical.AddOp, total, node.apply(logical.MulOp, column(number), coordinate), name="sum"
        )
    return total


def _unit_coordinates(
    node: Node, dim: int, shape: Sequence[int], align: bool, element: ElementType
) -> SSAValue:
    """Coordinates from -1 to 1 along a dimension: of the centres, or from the first centre to the last."""
    size = shape[dim]
    number = node.add(logical.IotaOp(dim, shape, element), "number")
    if align:
        step = 2 / (size - 1) if size > 1 else 0.0
        return node.apply(logical.SubOp, node.apply(logical.MulOp, number, step), 1.0, name="place")
    centre = node.apply(logical.AddOp, node.apply(logical.MulOp, number, 2.0), 1.0, name="centre")
    return node.apply(logical.SubOp, node.apply(logical.DivOp, centre, float(size)), 1.0, name="place")
