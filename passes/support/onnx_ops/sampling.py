"""ONNX ops that read a tensor at places that are computed as numbers: GridSample, AffineGrid, RoiAlign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named, element_of, tensor_info
from aicf.passes.support.onnx_ops.base import Node, Result, row
from aicf.semantics import composite_element

_CUBIC = -0.75
"""The free parameter of Keys' kernel."""


@dataclass(frozen=True)
class _Tap:
    """One of the elements along a dimension that a place takes; all of the shape of the places.

    Args:
        index: Of type i64, inside of the dimension.
        weight: None for 1.
        inside: i1; None if it always is. What is not inside counts as 0.
    """

    index: SSAValue
    weight: SSAValue | None
    inside: SSAValue | None


# Arithmetic on places


class _Places:
    """Writes arithmetic on places along one dimension of ``size`` elements.

    Args:
        align: Whether -1 and 1 are the centres of the first and the last element, not their outer borders.
        padding: zeros, border or reflection.
    """

    def __init__(self, node: Node, size: int, align: bool, padding: str) -> None:
        self.node = node
        self.size = size
        self.align = align
        self.padding = padding
        self.low, self.high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)

    def from_unit(self, x: SSAValue) -> SSAValue:
        """Places of coordinates from -1 to 1."""
        node = self.node
        above = node.apply(logical.AddOp, x, 1.0, name="above")
        if self.align:
            return node.apply(logical.MulOp, above, (self.size - 1) / 2, name="place")
        doubled = node.apply(logical.SubOp, node.apply(logical.MulOp, above, float(self.size)), 1.0)
        return node.apply(logical.MulOp, doubled, 0.5, name="place")

    def padded(self, x: SSAValue) -> SSAValue:
        """Where a place is read that lies beyond the operand: nowhere else, at the border, or mirrored there."""
        node = self.node
        if self.padding == "border":
            return self._at_border(x)
        if self.padding == "zeros":
            return x
        if self.high == self.low:
            return node.splat(self.low, x)
        span = self.high - self.low
        away = node.apply(logical.AbsOp, node.apply(logical.SubOp, x, self.low))
        turns = node.apply(logical.FloorOp, node.apply(logical.DivOp, away, 2 * span))
        rest = node.apply(logical.SubOp, away, node.apply(logical.MulOp, turns, 2 * span), name="rest")
        back = node.apply(logical.SubOp, node.splat(2 * span, rest), rest, name="back")
        return node.apply(logical.AddOp, node.apply(logical.MinOp, rest, back), self.low, name="mirrored")

    def _at_border(self, x: SSAValue) -> SSAValue:
        """The first or last element of a place beyond the outer borders; what lies inside of them stays."""
        node = self.node
        below = node.add(logical.CompareOp("lt", x, node.splat(self.low, x)), "below")
        above = node.add(logical.CompareOp("gt", x, node.splat(self.high, x)), "above")
        clamped = node.add(logical.ClampOp(x, 0.0, self.size - 1.0), "border")
        return node.add(logical.SelectOp(node.apply(logical.OrOp, below, above), clamped, x), "inside")

    def tap(self, x: SSAValue, weight: SSAValue | None) -> _Tap:
        """The element at a whole place."""
        node, last = self.node, self.size - 1.0
        inside: SSAValue | None = None
        if self.padding == "zeros":
            first = node.add(logical.CompareOp("ge", x, node.splat(0.0, x)), "behind")
            inside = node.apply(
                logical.AndOp, first, node.add(logical.CompareOp("le", x, node.splat(last, x)), "before")
            )
        elif self.padding == "reflection":
            x = self.padded(x)
        clamped = node.add(logical.ClampOp(x, 0.0, last), "clamped")
        return _Tap(node.cast(clamped, element_named("i64"), "index"), weight, inside)


def _nearest(places: _Places, x: SSAValue) -> list[_Tap]:
    return [places.tap(places.padded(places.node.apply(logical.RoundOp, x)), None)]


def _floor(places: _Places, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The whole place below, and how far the place is from it."""
    below = places.node.apply(logical.FloorOp, x)
    return below, places.node.apply(logical.SubOp, x, below, name="part")


def _linear(places: _Places, x: SSAValue) -> list[_Tap]:
    """The places below and above, by their distances."""
    node = places.node
    below, part = _floor(places, places.padded(x))
    rest = node.apply(logical.SubOp, node.splat(1.0, part), part, name="rest")
    return [places.tap(below, rest), places.tap(node.apply(logical.AddOp, below, 1.0, name="above"), part)]


def _cubic(places: _Places, x: SSAValue) -> list[_Tap]:
    """Two places below and two above, by the kernel of Keys, 1981."""
    node = places.node
    below, part = _floor(places, places.padded(x))
    rest = node.apply(logical.SubOp, node.splat(1.0, part), part, name="rest")

    def near(t: SSAValue) -> SSAValue:
        inner = node.apply(logical.SubOp, node.apply(logical.MulOp, t, _CUBIC + 2), _CUBIC + 3)
        return node.apply(logical.AddOp, node.apply(logical.MulOp, inner, _square(node, t)), 1.0, name="near")

    def far(t: SSAValue) -> SSAValue:
        """Of the distance less 1: a t (1 - t)^2, with t the distance from the border of the kernel's inner part."""
        away = node.apply(logical.SubOp, node.splat(1.0, t), t)
        scaled = node.apply(logical.MulOp, t, _CUBIC)
        return node.apply(logical.MulOp, scaled, _square(node, away), name="far")

    weights = (far(part), near(part), near(rest), far(rest))
    steps = (-1.0, 0.0, 1.0, 2.0)
    return [
        places.tap(node.apply(logical.AddOp, below, step, name="beside") if step else below, weight)
        for step, weight in zip(steps, weights, strict=True)
    ]


def _square(node: Node, x: SSAValue) -> SSAValue:
    return node.apply(logical.MulOp, x, x, name="square")


_MODES: dict[str, Callable[[_Places, SSAValue], list[_Tap]]] = {
    "nearest": _nearest,
    **dict.fromkeys(("linear", "bilinear"), _linear),
    **dict.fromkeys(("cubic", "bicubic"), _cubic),
}


def between(node: Node, planes: SSAValue, places: Sequence[SSAValue], spatial: Sequence[int]) -> SSAValue:
    """Elements at places between those of planes: by the distances of all neighbours, which are 0 beyond the border.

    Args:
        planes: ``[B, C, elements]``, in row-major order.
        places: For each dimension of a plane a coordinate, ``[B, count]``: 0 is the first element, 1 the next.
        spatial: The sizes of a plane.

    Returns:
        ``[B, C, count]``, in the element type of the places.
    """
    batch, channels, _ = tensor_info(planes.type).shape
    wide, count = element_of(places[0].type), tensor_info(places[0].type).shape[-1]
    taps = [_linear(_Places(node, size, True, "zeros"), x) for x, size in zip(places, spatial, strict=True)]

    def read(index: SSAValue) -> SSAValue:
        spread = node.broadcast(index, [0, 2], [batch, channels, count], "spread")
        return node.cast(node.add(logical.GatherElementsOp(planes, spread, 2), "read"), wide, "widen")

    return _weighted(node, taps, spatial, read, [0, 2])


@row("GridSample", since=16)
def _grid_sample(node: Node) -> Result:
    """Elements of each plane at the places of a grid, whose last coordinate is of the first dimension."""
    shape, grid = node.shape(0), node.shape(1)
    batch, channels, *spatial = shape
    if len(grid) != len(shape) or grid[-1] != len(spatial) or grid[0] != batch:
        raise node.invalid(f"the grid has shape {list(grid)} for an operand of {list(shape)}")
    mode = node.attributes.string("mode", "linear")
    padding = node.attributes.string("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        raise node.invalid(
            f"mode is {mode} and padding_mode {padding}; they are nearest, linear or cubic, and "
            "zeros, border or reflection"
        )
    align = bool(node.attributes.int("align_corners", 0))
    element = element_of(node.operand(0).type)
    wide = composite_element(element)
    x = node.reshape(node.operand(0), [batch, channels, prod(spatial)], "planes")
    places = node.cast(node.operand(1), wide, "widen")
    count = prod(grid[1:-1])
    taps: list[list[_Tap]] = []
    for dim, size in enumerate(spatial):
        along = _Places(node, size, align, padding)
        starts, sizes = [0] * (len(grid) - 1), [*grid[:-1], 1]
        part = node.slice(places, [*starts, len(spatial) - 1 - dim], sizes, suffix="coordinate")
        taps.append(_MODES[mode](along, along.from_unit(node.reshape(part, [batch, count], "coordinate"))))

    def read(index: SSAValue) -> SSAValue:
        spread = node.broadcast(index, [0, 2], [batch, channels, count], "spread")
        return node.cast(node.add(logical.GatherElementsOp(x, spread, 2), "read"), wide, "widen")

    total = _weighted(node, taps, spatial, read, [0, 2])
    return node.reshape(node.cast(total, element, "narrow"), [batch, channels, *grid[1:-1]])


def _weighted(
    node: Node,
    taps: Sequence[Sequence[_Tap]],
    spatial: Sequence[int],
    read: Callable[[SSAValue], SSAValue],
    dims: Sequence[int],
) -> SSAValue:
    """The sum over all combinations of one tap for each dimension.

    Args:
        read: From row-major indices of a plane to its elements.
        dims: The dimensions of what is read that those of the taps are.
    """
    total: SSAValue | None = None
    for chosen in product(*taps):
        index, weight, inside = chosen[0].index, chosen[0].weight, chosen[0].inside
        for tap, size in zip(chosen[1:], spatial[1:], strict=True):
            index = node.apply(logical.AddOp, node.apply(logical.MulOp, index, size), tap.index, name="flat")
            weight = _joined(node, logical.MulOp, weight, tap.weight, "weight")
            inside = _joined(node, logical.AndOp, inside, tap.inside, "inside")
        value = read(index)
        sizes = tensor_info(value.type).shape
        if inside is not None:
            mask = node.broadcast(inside, dims, sizes, "mask")
            value = node.add(logical.SelectOp(mask, value, node.splat(0.0, value)), "seen")
        if weight is not None:
            value = node.apply(logical.MulOp, value, node.broadcast(weight, dims, sizes, "spread"))
        total = value if total is None else node.apply(logical.AddOp, total, value, name="sum")
    assert total is not None
    return total


def _joined(
    node: Node, op: type[logical.BinaryOp], lhs: SSAValue | None, rhs: SSAValue | None, name: str
) -> SSAValue | None:
    if lhs is None or rhs is None:
        return rhs if lhs is None else lhs
    return node.apply(op, lhs, rhs, name=name)


# Grids


@row("AffineGrid", since=20)
def _affine_grid(node: Node) -> Result:
    """The places that an affine map of coordinates from -1 to 1 gives: ``[N, S1..Sk, k]``."""
    theta, sizes = node.operand(0), node.ints(1, "size")
    batch, _, *spatial = sizes
    rank = len(spatial)
    if node.shape(0) != (batch, rank, rank + 1):
        raise node.invalid(f"theta has shape {list(node.shape(0))}, size is {sizes}")
    align = bool(node.attributes.int("align_corners", 0))
    shape = [batch, *spatial, rank]

    def column(number: int) -> SSAValue:
        part = node.slice(theta, [0, 0, number], [batch, rank, 1], suffix="column")
        return node.broadcast(node.reshape(part, [batch, rank], "column"), [0, rank + 1], shape, "spread")

    total = column(rank)
    for number in range(rank):
        dim = rank - number  # the first coordinate is of the last dimension
        place = _unit_places(node, dim, shape, align, element_of(theta.type))
        total = node.apply(logical.AddOp, total, node.apply(logical.MulOp, column(number), place), name="sum")
    return total


def _unit_places(node: Node, dim: int, shape: Sequence[int], align: bool, element: ElementType) -> SSAValue:
    """Coordinates from -1 to 1 along a dimension: of the centres, or from the first centre to the last."""
    size = shape[dim]
    number = node.add(logical.IotaOp(dim, shape, element), "number")
    if align:
        step = 2 / (size - 1) if size > 1 else 0.0
        return node.apply(logical.SubOp, node.apply(logical.MulOp, number, step), 1.0, name="place")
    centre = node.apply(logical.AddOp, node.apply(logical.MulOp, number, 2.0), 1.0, name="centre")
    return node.apply(logical.SubOp, node.apply(logical.DivOp, centre, float(size)), 1.0, name="place")


# Regions


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
        _points(node, rois, place, count, points, size, shifted=mode == "half_pixel")
        for place, count, size in ((1, cells[0], height), (0, cells[1], width))
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
        place = node.apply(logical.AddOp, index, origin, name="place")
        return node.cast(node.add(logical.GatherOp(planes, place, 1), "read"), wide, "widen")

    spread = [
        [_spread_tap(node, tap, dims, grid) for tap in taps]
        for taps, dims in ((rows, [0, 1]), (columns, [0, 2]))
    ]
    combined = _combined(node, spread, width, read, [channels, regions, cells[0], points, cells[1], points])
    turned = node.transpose(combined, [1, 0, 2, 3], "regions")
    return node.cast(turned, element, "narrow")


def _spread_tap(node: Node, tap: _Tap, dims: Sequence[int], sizes: Sequence[int]) -> _Tap:
    weight = None if tap.weight is None else node.broadcast(tap.weight, dims, sizes, "spread")
    return _Tap(node.broadcast(tap.index, dims, sizes, "spread"), weight, None)


def _combined(
    node: Node,
    taps: Sequence[Sequence[_Tap]],
    width: int,
    read: Callable[[SSAValue], SSAValue],
    sizes: Sequence[int],
) -> SSAValue:
    """``[C, R, rows, columns]``: the mean of a cell's points, or the largest of all parts that they are sums of."""
    match node.attributes.string("mode", "avg"):
        case "avg":
            total = _weighted(node, taps, [1, width], read, [1, 2, 3])
            return node.apply(logical.ReduceMeanOp, node.reshape(total, sizes, "points"), axes=[3, 5])
        case "max":
            largest: SSAValue | None = None
            for pair in product(*taps):
                part = _weighted(node, [[tap] for tap in pair], [1, width], read, [1, 2, 3])
                largest = part if largest is None else node.apply(logical.MaxOp, largest, part)
            assert largest is not None
            return node.apply(logical.ReduceMaxOp, node.reshape(largest, sizes, "points"), axes=[3, 5])
        case other:
            raise node.invalid(f"mode is {other}; it is avg or max")


def _points(
    node: Node, rois: SSAValue, place: int, cells: int, points: int, size: int, *, shifted: bool
) -> list[_Tap]:
    """``[R, cells * points]``: the elements before and behind the points of each cell along one dimension."""
    regions, element = tensor_info(rois.type).shape[0], element_of(rois.type)
    scale = node.attributes.float("spatial_scale", 1.0)

    def border(column: int) -> SSAValue:
        part = node.slice(rois, [0, column], [regions, 1], suffix="border")
        scaled = node.apply(logical.MulOp, node.reshape(part, [regions], "border"), scale, name="scaled")
        return node.apply(logical.SubOp, scaled, 0.5, name="shifted") if shifted else scaled

    start = border(place)
    extent = node.apply(logical.SubOp, border(place + 2), start, name="extent")
    if not shifted:
        extent = node.apply(logical.MaxOp, extent, 1.0, name="extent")
    step = node.apply(logical.DivOp, extent, float(cells * points), name="step")
    sizes = [regions, cells * points]
    number = node.add(logical.IotaOp(1, sizes, element), "number")
    middle = node.apply(logical.AddOp, number, 0.5, name="middle")
    along = node.apply(logical.MulOp, middle, node.broadcast(step, [0], sizes, "spread"), name="along")
    x = node.apply(logical.AddOp, along, node.broadcast(start, [0], sizes, "spread"), name="point")
    return _between(node, x, size)


def _between(node: Node, x: SSAValue, size: int) -> list[_Tap]:
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
        _Tap(node.cast(index, i64, "index"), node.add(logical.SelectOp(inside, weight, zero), "weight"), None)
        for index, weight in ((below, rest), (above, part))
    ]
