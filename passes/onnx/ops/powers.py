"""Remainders and powers, whose operands may be of any types and sizes: exact where the result can be."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.elementwise import compare, select
from aicf.passes.onnx.ops.pointwise import narrow, pointwise

# Remainders


@row("Mod", since=10)
@pointwise()
def _mod(node: Node) -> Result:
    """What a division leaves: with the sign of the dividend if ``fmod`` is set, else with that of the divisor."""
    truncates = node.attributes.flag("fmod")
    x, y = node.operand(0), node.operand(1)
    if node.element(0).is_float:
        return narrow(node, _float_remainder(node, x, y, truncates))
    if not truncates:
        return node.elementwise(logical.ModOp, x, y)
    whole = node.elementwise(logical.MulOp, node.elementwise(logical.DivOp, x, y), y)
    return node.elementwise(logical.SubOp, x, whole)


_STEPS = {"f16": 2, "bf16": 12, "f32": 12, "f64": 4}
"""How many times 24 bits of the quotient are taken off: all of every type, but of f64 96 bits."""
_STEP_BITS = 24
_LARGEST_SCALED = 2.0**990
"""Up to here a divisor can be split in halves without overflow."""


def _float_remainder(node: Node, x: SSAValue, y: SSAValue, truncates: bool) -> SSAValue:
    """The exact remainder, computed in f64 with magnitudes; NaN where four steps of f64 do not reach it.

    In each step a multiple of y times a power of two is taken off |x|. The factor has 24 bits, and the divisor 24 or
    two halves of 26, so that products and differences are exact. A factor that was rounded up leaves a negative rest,
    which the next step or the last line makes up for.
    """
    sizes = node.joint_shape(node.shape(0), node.shape(1))
    wide = [node.cast(node.broadcast_to(value, sizes), element_named("f64"), "wide") for value in (x, y)]
    rest, divisor = (node.apply(logical.AbsOp, value) for value in wide)
    in_halves = node.element(0).name == "f64"
    for step in reversed(range(_STEPS[node.element(0).name])):
        rest = _take_off(node, rest, divisor, 2.0 ** (step * _STEP_BITS), in_halves)
    below = compare(node, "lt", rest, 0.0)
    rest = select(node, below, node.apply(logical.AddOp, rest, divisor), rest)
    rest = select(node, compare(node, "lt", rest, divisor), rest, np.nan)
    negative = compare(node, "lt", wide[0], 0.0)
    rest = select(node, negative, node.apply(logical.NegOp, rest), rest)
    return rest if truncates else _on_side_of(node, rest, wide[1])


def _take_off(node: Node, rest: SSAValue, divisor: SSAValue, scale: float, in_halves: bool) -> SSAValue:
    """The rest less the largest multiple of ``scale * divisor`` that it holds."""
    scaled = node.apply(logical.MulOp, divisor, scale) if scale > 1 else divisor
    factor = node.apply(logical.FloorOp, node.apply(logical.DivOp, rest, scaled))
    less = rest
    for part in _halves(node, scaled) if in_halves else [scaled]:
        less = node.apply(logical.SubOp, less, node.apply(logical.MulOp, factor, part))
    # A divisor beyond the limit is larger than the rest, or is left to the next step.
    return select(node, compare(node, "le", scaled, _LARGEST_SCALED), less, rest)


def _halves(node: Node, value: SSAValue) -> list[SSAValue]:
    """Veltkamp's split: two numbers of 26 bits whose sum is the value."""
    spread = node.apply(logical.MulOp, value, 2.0**27 + 1)
    high = node.apply(logical.SubOp, spread, node.apply(logical.SubOp, spread, value))
    return [high, node.apply(logical.SubOp, value, high)]


def _on_side_of(node: Node, rest: SSAValue, divisor: SSAValue) -> SSAValue:
    """A rest with the sign of the divisor: one on the other side moves by the divisor, and 0 takes the sign."""
    below = [compare(node, "lt", value, 0.0) for value in (rest, divisor)]
    moved = node.apply(logical.AddOp, rest, divisor)
    near = select(node, node.apply(logical.XorOp, *below), moved, rest)
    zero = select(node, below[1], node.splat(-0.0, rest), 0.0)
    return select(node, compare(node, "eq", rest, 0.0), zero, near)


# Powers


@row("Pow", since=7)
@pointwise()
def _pow(node: Node) -> Result:
    """X ** Y in the element type of X, whatever that of Y."""
    x, y = node.operand(0), node.operand(1)
    if not (node.element(0).is_float or node.element(1).is_float):
        return _whole_power(node, x, y)
    element = _element_of_power(node)
    base, exponent = (node.cast(value, element, "wide") for value in (x, y))
    return narrow(node, node.elementwise(logical.PowOp, base, exponent))


def _element_of_power(node: Node) -> ElementType:
    """The float type that a power is computed in: the one of X if it holds Y exactly."""
    x, y, known = node.element(0), node.element(1), node.known(1)
    if x.is_float and (x == y or x.name == "f64"):
        return x
    is_held = known is not None and bool(np.all(known.astype(np.float32) == known.astype(np.float64)))
    if x.is_float and (is_held or y.name in ("f16", "bf16", "f32", "i16", "i8", "u8")):
        return element_named("f32")
    return element_named("f64")


_BITS = 7
"""Bits of an exponent that is at most 65: a larger power of a number beyond 1 overflows, and wraps around."""


def _whole_power(node: Node, x: SSAValue, y: SSAValue) -> SSAValue:
    """Powers of integers by squaring; a negative exponent gives what truncates to 0, unless X is 1 or -1."""
    known = node.known(1)
    if known is not None and known.size and known.min() == known.max() >= 0:
        return node.broadcast_to(_product(node, x, int(known.flat[0])), _joint(node))
    x, y = (node.broadcast_to(value, _joint(node)) for value in (x, y))
    odd = node.apply(logical.AndOp, y, 1)
    bounded = select(node, compare(node, "ge", y, 64), node.apply(logical.AddOp, odd, 64), y)
    negative = compare(node, "lt", y, 0)
    exponent = node.cast(select(node, negative, odd, bounded), node.element(0), "exponent")
    power, square = node.splat(1, x), x
    for bit in range(_BITS):
        taken = compare(node, "ne", node.apply(logical.AndOp, exponent, 1 << bit), 0)
        power = select(node, taken, node.apply(logical.MulOp, power, square), power)
        square = node.apply(logical.MulOp, square, square)
    is_large = compare(node, "ne", node.apply(logical.AbsOp, x), 1)
    vanishes = node.apply(logical.AndOp, negative, is_large)
    return select(node, vanishes, node.splat(0, x), power)


def _joint(node: Node) -> tuple[int, ...]:
    return node.joint_shape(node.shape(0), node.shape(1))


def _product(node: Node, x: SSAValue, count: int) -> SSAValue:
    """x multiplied ``count`` times, by squaring."""
    if count == 0:
        return node.splat(1, x)
    half = _product(node, x, count // 2) if count > 1 else None
    square = x if half is None else node.apply(logical.MulOp, half, half)
    return node.apply(logical.MulOp, square, x) if half is not None and count % 2 else square
