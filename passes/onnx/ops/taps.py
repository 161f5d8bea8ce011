"""Reading between the elements of a tensor: which elements a coordinate takes, along each dimension, and their weights.

Coordinates are numbers that a program computes; tables that follow from sizes alone are `interpolation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named, element_of, tensor_info
from aicf.passes.onnx.ops.base import Node

_CUBIC = -0.75
"""The free parameter of Keys' kernel."""


@dataclass(frozen=True)
class Tap:
    """One of the elements along a dimension that a coordinate takes; all of the shape of the coordinates.

    Args:
        index: Of type i64, inside of the dimension.
        weight: None for 1.
        inside: i1; None if it always is. What is not inside counts as 0.
    """

    index: SSAValue
    weight: SSAValue | None
    inside: SSAValue | None


# Arithmetic on coordinates


class Coordinates:
    """Writes arithmetic on coordinates along one dimension of ``size`` elements.

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
        """Coordinates, in elements, of those from -1 to 1."""
        node = self.node
        above = node.apply(logical.AddOp, x, 1.0, name="above")
        if self.align:
            return node.apply(logical.MulOp, above, (self.size - 1) / 2, name="place")
        doubled = node.apply(logical.SubOp, node.apply(logical.MulOp, above, float(self.size)), 1.0)
        return node.apply(logical.MulOp, doubled, 0.5, name="place")

    def padded(self, x: SSAValue) -> SSAValue:
        """Where a coordinate is read that lies beyond the operand: nowhere else, at the border, or mirrored there."""
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
        """The first or last element of a coordinate beyond the outer borders; what lies inside of them stays."""
        node = self.node
        below = node.add(logical.CompareOp("lt", x, node.splat(self.low, x)), "below")
        above = node.add(logical.CompareOp("gt", x, node.splat(self.high, x)), "above")
        clamped = node.add(logical.ClampOp(x, 0.0, self.size - 1.0), "border")
        return node.add(logical.SelectOp(node.apply(logical.OrOp, below, above), clamped, x), "inside")

    def tap(self, x: SSAValue, weight: SSAValue | None) -> Tap:
        """The element at a whole coordinate."""
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
        return Tap(node.cast(clamped, element_named("i64"), "index"), weight, inside)


def _nearest(coordinates: Coordinates, x: SSAValue) -> list[Tap]:
    return [coordinates.tap(coordinates.padded(coordinates.node.apply(logical.RoundOp, x)), None)]


def _floor(coordinates: Coordinates, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The whole coordinate below, and how far the coordinate is from it."""
    below = coordinates.node.apply(logical.FloorOp, x)
    return below, coordinates.node.apply(logical.SubOp, x, below, name="part")


def _linear(coordinates: Coordinates, x: SSAValue) -> list[Tap]:
    """The coordinates below and above, by their distances."""
    node = coordinates.node
    below, part = _floor(coordinates, coordinates.padded(x))
    rest = node.apply(logical.SubOp, node.splat(1.0, part), part, name="rest")
    return [
        coordinates.tap(below, rest),
        coordinates.tap(node.apply(logical.AddOp, below, 1.0, name="above"), part),
    ]


def _cubic(coordinates: Coordinates, x: SSAValue) -> list[Tap]:
    """Two coordinates below and two above, by the kernel of Keys, 1981."""
    node = coordinates.node
    below, part = _floor(coordinates, coordinates.padded(x))
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
        coordinates.tap(node.apply(logical.AddOp, below, step, name="beside") if step else below, weight)
        for step, weight in zip(steps, weights, strict=True)
    ]


def _square(node: Node, x: SSAValue) -> SSAValue:
    return node.apply(logical.MulOp, x, x, name="square")


MODES: dict[str, Callable[[Coordinates, SSAValue], list[Tap]]] = {
    "nearest": _nearest,
    **dict.fromkeys(("linear", "bilinear"), _linear),
    **dict.fromkeys(("cubic", "bicubic"), _cubic),
}


def between(
    node: Node, planes: SSAValue, coordinates: Sequence[SSAValue], spatial: Sequence[int]
) -> SSAValue:
    """Elements at coordinates between those of planes: by the distances of all neighbours, 0 beyond the border.

    Args:
        planes: ``[B, C, elements]``, in row-major order.
        coordinates: For each dimension of a plane a coordinate, ``[B, count]``: 0 is the first element, 1 the next.
        spatial: The sizes of a plane.

    Returns:
        ``[B, C, count]``, in the element type of the coordinates.
    """
    taps = [
        _linear(Coordinates(node, size, True, "zeros"), x)
        for x, size in zip(coordinates, spatial, strict=True)
    ]
    return sampled(node, planes, taps, spatial, element_of(coordinates[0].type))


def sampled(
    node: Node, planes: SSAValue, taps: Sequence[Sequence[Tap]], spatial: Sequence[int], wide: ElementType
) -> SSAValue:
    """``[B, C, count]`` of an element type: what taps of shape ``[B, count]`` read in planes ``[B, C, elements]``."""
    batch, channels, _ = tensor_info(planes.type).shape
    count = tensor_info(taps[0][0].index.type).shape[-1]

    def read(index: SSAValue) -> SSAValue:
        spread = node.broadcast(index, [0, 2], [batch, channels, count], "spread")
        return node.cast(node.add(logical.GatherElementsOp(planes, spread, 2), "read"), wide, "widen")

    return weighted(node, taps, spatial, read, [0, 2])


def weighted(
    node: Node,
    taps: Sequence[Sequence[Tap]],
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
