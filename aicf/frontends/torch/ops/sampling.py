"""ATen ops that interpolate images at the coordinates of a grid, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row

_CUBIC = -0.75
"""The free parameter of Keys' kernel."""


@dataclass(frozen=True)
class Tap:
    """One of the elements along a dimension that a coordinate takes; all of the shape of the coordinates.

    Args:
        index: Of type i64, inside of the dimension.
        weight: None for 1.
        slope: How the weight grows with the coordinate; None where it does not.
        inside: i1; None if it always is. Elements outside count as 0.
    """

    index: Value
    weight: Value | None
    slope: Value | None
    inside: Value | None


class Coordinates:
    """Writes arithmetic on coordinates along one dimension of ``size`` elements.

    Args:
        align: Whether -1 and 1 are the centres of the first and the last element, not their outer borders.
        padding: zeros, border or reflection.
    """

    def __init__(self, writer: Writer, size: int, align: bool, padding: str) -> None:
        self.writer, self.graph = writer, writer.graph
        self.size = size
        self.align = align
        self.padding = padding
        self.low, self.high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)

    def from_unit(self, x: Value) -> Value:
        """Coordinates, in elements, of those from -1 to 1."""
        graph = self.graph
        above = graph.add(x, 1.0)
        if self.align:
            return graph.mul(above, (self.size - 1) / 2)
        return graph.mul(graph.sub(graph.mul(above, float(self.size)), 1.0), 0.5)

    @property
    def unit(self) -> float:
        """How far a coordinate in elements moves with one from -1 to 1."""
        return (self.size - 1) / 2 if self.align else self.size / 2

    def padded(self, x: Value) -> tuple[Value, Value | None]:
        """Where a coordinate is read that lies beyond the operand, and how that moves with the coordinate."""
        match self.padding:
            case "border":
                return self._bordered(x)
            case "reflection":
                mirrored, turn = self._mirrored(x)
                inside, kept = self._bordered(mirrored)
                return inside, self.graph.mul(turn, kept)
            case _:
                return x, None

    def _bordered(self, x: Value) -> tuple[Value, Value]:
        """The first or last element of what lies beyond, which stays there. NaN is at the first, as in PyTorch."""
        graph, last = self.graph, self.size - 1.0
        is_in = graph.and_(graph.gt(x, 0.0), graph.lt(x, last))
        known = graph.select(graph.is_nan(x), self.writer.full((), 0, x.dtype), x)
        return graph.clamp(known, 0.0, last), self.writer.cast(is_in, x.dtype)

    def _mirrored(self, x: Value) -> tuple[Value, Value]:
        """Mirrored at the borders as often as it takes, and the direction in which that moves."""
        graph, writer = self.graph, self.writer
        shape = writer.sizes(x)
        if self.high == self.low:
            return writer.full(shape, 0, x.dtype), writer.full(shape, 0, x.dtype)
        span = self.high - self.low
        away = graph.abs(graph.sub(x, self.low))
        turns = graph.floor(graph.div(away, 2 * span))
        rest = graph.sub(away, graph.mul(turns, 2 * span))
        back = graph.sub(2 * span, rest)
        mirrored = graph.add(graph.min(rest, back), self.low)
        is_turned = graph.ne(
            writer.cast(graph.lt(x, self.low), "i32"), writer.cast(graph.gt(rest, span), "i32")
        )
        one, other = writer.full((), -1, x.dtype), writer.full((), 1, x.dtype)
        return mirrored, graph.select(is_turned, one, other)

    def tap(self, x: Value, weight: Value | None, slope: Value | None = None, fold: bool = False) -> Tap:
        """The element at a whole coordinate.

        Args:
            fold: Whether the coordinate may lie beyond the operand, and the padding says where it is read.
        """
        graph, last = self.graph, self.size - 1.0
        inside: Value | None = None
        if fold and self.padding != "zeros":
            x, _ = self.padded(x)
        elif self.padding == "zeros":
            inside = graph.and_(graph.ge(x, 0.0), graph.le(x, last))
        index = self.writer.cast(graph.clamp(x, 0.0, last), "i64")
        return Tap(index, weight, slope, inside)


def _nearest(along: Coordinates, x: Value) -> list[Tap]:
    inside, _ = along.padded(x)
    return [along.tap(along.graph.round(inside), None)]


def _linear(along: Coordinates, x: Value) -> list[Tap]:
    """The elements below and above, by their distances."""
    graph = along.graph
    inside, moves = along.padded(x)
    below = graph.floor(inside)
    part = graph.sub(inside, below)
    up = along.writer.full((), 1, x.dtype) if moves is None else moves
    return [
        along.tap(below, graph.sub(1.0, part), graph.neg(up)),
        along.tap(graph.add(below, 1.0), part, up),
    ]


def _cubic(along: Coordinates, x: Value) -> list[Tap]:
    """Two elements below and two above, by the kernel of Keys, 1981. Each is padded for itself."""
    graph = along.graph
    below = graph.floor(x)
    part = graph.sub(x, below)
    rest = graph.sub(1.0, part)

    def near(t: Value) -> Value:
        inner = graph.sub(graph.mul(t, _CUBIC + 2), _CUBIC + 3)
        return graph.add(graph.mul(inner, graph.mul(t, t)), 1.0)

    def far(t: Value) -> Value:
        """Of the distance less 1: a t (1 - t)^2, with t the distance from the border of the kernel's inner part."""
        away = graph.sub(1.0, t)
        return graph.mul(graph.mul(t, _CUBIC), graph.mul(away, away))

    def near_slope(t: Value) -> Value:
        return graph.mul(graph.sub(graph.mul(t, 3 * (_CUBIC + 2)), 2 * (_CUBIC + 3)), t)

    def far_slope(t: Value) -> Value:
        """The derivative of a t (1 - t)^2: a (1 - t) (1 - 3 t)."""
        return graph.mul(graph.mul(graph.sub(1.0, t), _CUBIC), graph.sub(1.0, graph.mul(t, 3.0)))

    weights = (far(part), near(part), near(rest), far(rest))
    slopes = (far_slope(part), near_slope(part), graph.neg(near_slope(rest)), graph.neg(far_slope(rest)))
    return [
        along.tap(graph.add(below, step), weight, slope, fold=True)
        for step, weight, slope in zip((-1.0, 0.0, 1.0, 2.0), weights, slopes, strict=True)
    ]


_MODES: tuple[Callable[[Coordinates, Value], list[Tap]], ...] = (_linear, _nearest, _cubic)
_PADDINGS = ("zeros", "border", "reflection")


@dataclass(frozen=True)
class Read:
    """One combination of a tap for each dimension.

    Args:
        index: Row-major number of an element of a plane, ``[B, count]``.
        weight: None for 1.
        slopes: The derivative of the weight by the coordinate of each dimension; None where it is 0.
        inside: Whether there is such an element; None if there always is.
    """

    index: Value
    weight: Value | None
    slopes: Sequence[Value | None]
    inside: Value | None


def _combinations(writer: Writer, taps: Sequence[Sequence[Tap]], spatial: Sequence[int]) -> list[Read]:
    graph = writer.graph

    def joined(op: Callable[[Value, Value], Value], values: Sequence[Value | None]) -> Value | None:
        total: Value | None = None
        for value in values:
            if value is not None:
                total = value if total is None else op(total, value)
        return total

    reads: list[Read] = []
    for chosen in product(*taps):
        index = chosen[0].index
        for tap, size in zip(chosen[1:], spatial[1:], strict=True):
            index = graph.add(graph.mul(index, size), tap.index)
        weights = [tap.weight for tap in chosen]
        slopes = [
            None if tap.slope is None else joined(graph.mul, [tap.slope, *weights[:dim], *weights[dim + 1 :]])
            for dim, tap in enumerate(chosen)
        ]
        inside = joined(graph.and_, [tap.inside for tap in chosen])
        reads.append(Read(index, joined(graph.mul, weights), slopes, inside))
    return reads


@dataclass(frozen=True)
class _Sampled:
    """An image and what a grid reads in it: planes ``[B, C, elements]``, and the reads of each point of the grid."""

    planes: Value
    reads: Sequence[Read]
    units: Sequence[float]
    count: int

    @property
    def channels(self) -> list[int]:
        """The batch and the channels."""
        return list(self.planes.info.shape[:2])


def _sampled(writer: Writer, x: Value, grid: Value, mode: int, padding: int, align: bool) -> _Sampled:
    batch, channels, *spatial = writer.sizes(x)
    count, rank = math.prod(writer.sizes(grid)[1:-1]), len(spatial)
    planes = writer.widened(writer.reshape(x, [batch, channels, math.prod(spatial)]))
    points = writer.reshape(writer.widened(grid), [batch, count, rank])
    taps: list[list[Tap]] = []
    units: list[float] = []
    for dim, size in enumerate(spatial):
        along = Coordinates(writer, size, align, _PADDINGS[padding])
        # The last coordinate is of the first dimension.
        part = writer.drop(writer.part(points, 2, rank - 1 - dim, rank - dim), 2)
        taps.append(_MODES[mode](along, along.from_unit(part)))
        units.append(along.unit)
    return _Sampled(planes, _combinations(writer, taps, spatial), units, count)


def _value_at(writer: Writer, sampled: _Sampled, read: Read) -> Value:
    """``[B, C, count]``: what one tap reads, 0 where there is nothing."""
    shape = [*sampled.channels, sampled.count]
    indices = writer.expand(writer.insert(read.index, 1), shape)
    value = writer.graph.gather_elements(sampled.planes, indices, 2)
    if read.inside is None:
        return value
    return writer.graph.select(writer.insert(read.inside, 1), value, writer.full((), 0, value.dtype))


@row("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def _grid_sampler(writer: Writer, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    """The elements of each plane at the coordinates of a grid."""
    sampled = _sampled(writer, x, grid, mode, padding, align)
    total: Value | None = None
    for read in sampled.reads:
        value = _value_at(writer, sampled, read)
        if read.weight is not None:
            value = writer.graph.mul(value, writer.insert(read.weight, 1))
        total = value if total is None else writer.graph.add(total, value)
    assert total is not None
    return writer.result(writer.reshape(total, writer.shape))


@row("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default")
def _grid_sampler_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    grid: Value,
    mode: int,
    padding: int,
    align: bool,
    wanted: Sequence[bool],
) -> list[Value | None]:
    """The gradients of the elements that the grid reads, and of its coordinates."""
    sampled = _sampled(writer, x, grid, mode, padding, align)
    batch, channels = sampled.channels
    gradient = writer.widened(writer.reshape(grad, [batch, channels, sampled.count]))
    to_image = _to_image(writer, sampled, gradient) if wanted[0] and 0 in writer.used else None
    to_grid = _to_grid(writer, sampled, gradient) if wanted[1] and 1 in writer.used else None
    return [
        None if found is None else writer.result(writer.reshape(found, writer.results[index].shape), index)
        for index, found in enumerate((to_image, to_grid))
    ]


def _to_image(writer: Writer, sampled: _Sampled, grad: Value) -> Value:
    """All gradients times their weights, added to the elements that were read."""
    graph, shape = writer.graph, writer.sizes(grad)
    total = writer.full(writer.sizes(sampled.planes), 0, grad.dtype)
    for read in sampled.reads:
        part = grad
        if read.weight is not None:
            part = graph.mul(part, writer.insert(read.weight, 1))
        if read.inside is not None:
            part = graph.select(writer.insert(read.inside, 1), part, writer.full((), 0, part.dtype))
        indices = writer.expand(writer.insert(read.index, 1), shape)
        total = graph.scatter_elements(total, indices, part, 2, "add")
    return total


def _to_grid(writer: Writer, sampled: _Sampled, grad: Value) -> Value:
    """``[B, count, dimensions]``: what was read times the slopes of its weights."""
    graph, rank = writer.graph, len(sampled.units)
    batch, _ = sampled.channels
    totals: list[Value | None] = [None] * rank
    for read in sampled.reads:
        if all(slope is None for slope in read.slopes):
            continue
        reached = graph.reduce_sum(graph.mul(_value_at(writer, sampled, read), grad), [1])
        for dim, slope in enumerate(read.slopes):
            if slope is None:
                continue
            part, before = graph.mul(reached, slope), totals[dim]
            totals[dim] = part if before is None else graph.add(before, part)
    zeros = writer.full([batch, sampled.count], 0, grad.dtype)
    found = [
        zeros if total is None else graph.mul(total, unit)
        for total, unit in zip(totals, sampled.units, strict=True)
    ]
    return graph.concat([writer.insert(each, 2) for each in found[::-1]], 2)


# Grids


@row("affine_grid_generator.default")
def _affine_grid(writer: Writer, theta: Value, size: Sequence[int], align: bool) -> Value:
    """The coordinates from -1 to 1, mapped by an affine map: ``[N, S1..Sk, k]``."""
    graph, shape = writer.graph, writer.shape
    batch, *spatial, rank = shape
    theta = writer.widened(theta)

    def column(number: int) -> Value:
        part = writer.part(theta, 2, number, number + 1)
        return writer.reshape(part, [batch, *[1] * rank, rank])

    total = column(rank)
    for number in range(rank):
        axis = rank - 1 - number  # the first coordinate is of the last dimension
        position = _unit_coordinates(writer, spatial[axis], align, theta.dtype)
        along = [spatial[axis] if at == axis else 1 for at in range(rank)]
        total = graph.add(total, graph.mul(column(number), writer.reshape(position, [1, *along, 1])))
    return writer.result(total)


def _unit_coordinates(writer: Writer, size: int, align: bool, dtype: str) -> Value:
    """Coordinates from -1 to 1 along a dimension: of the centres, or from the first centre to the last."""
    graph = writer.graph
    if size == 1:
        return writer.full([1], 0, dtype)
    number = graph.iota([size], 0, dtype)
    if align:
        return graph.sub(graph.mul(number, 2 / (size - 1)), 1.0)
    return graph.sub(graph.div(graph.add(graph.mul(number, 2.0), 1.0), float(size)), 1.0)
