"""ATen divisions: quotients, with three kinds of rounding, and remainders."""

from __future__ import annotations

import math

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Operand, OtherGradient, Writer, is_float, row, wide
from aicf.frontends.torch.ops.elementwise import computed_in, truncated


@row("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def _div(writer: Writer, lhs: Operand, rhs: Operand) -> Value:
    """lhs / rhs, a float."""
    one, other = writer.promoted(lhs, rhs, dtype=computed_in(writer, lhs, rhs))
    return writer.result(writer.graph.div(one, other))


@row("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(writer: Writer, lhs: Operand, rhs: Operand, *, rounding_mode: str | None = None) -> Value:
    """lhs / rhs, rounded toward 0 or down if that is asked for."""
    if rounding_mode is None:
        return _div(writer, lhs, rhs)
    if rounding_mode == "floor":
        return _floor_divide(writer, lhs, rhs)
    one, other = writer.promoted(lhs, rhs, dtype=wide(writer.dtype))
    quotient = writer.graph.div(one, other)
    return writer.result(truncated(writer.graph, quotient) if is_float(writer.dtype) else quotient)


@row("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(writer: Writer, lhs: Operand, rhs: Operand) -> Value:
    """lhs / rhs rounded down, as if the quotient had not been rounded before; x / 0 is infinite."""
    if not is_float(writer.dtype):
        return writer.graph.floor_div(*writer.promoted(lhs, rhs, dtype=writer.dtype))
    graph, (x, y) = writer.graph, _as_f64(writer, lhs, rhs)
    rest = _truncated_remainder(graph, x, y, writer.dtype)
    quotient = graph.round(graph.div(graph.sub(x, rest), y))
    below = graph.and_(graph.ne(rest, 0.0), graph.xor(graph.lt(rest, 0.0), graph.lt(y, 0.0)))
    quotient = graph.select(below, graph.sub(quotient, 1.0), quotient)
    return writer.result(graph.select(graph.eq(y, 0.0), graph.div(x, y), quotient))


_DIVISOR = OtherGradient("the divisor also gets a gradient")


@row("fmod.Tensor", other_gradient=_DIVISOR)
@row("fmod.Scalar")
def _fmod(writer: Writer, lhs: Operand, rhs: Operand) -> Value:
    """The remainder of a truncating division; it has the sign of lhs."""
    graph = writer.graph
    if is_float(writer.dtype):
        return writer.result(_truncated_remainder(graph, *_as_f64(writer, lhs, rhs), writer.dtype))
    x, y = (writer.tensor(operand, writer.dtype) for operand in (lhs, rhs))
    return graph.sub(x, graph.mul(graph.div(x, y), y))


@row("remainder.Tensor", "remainder.Scalar_Tensor", other_gradient=_DIVISOR)
@row("remainder.Scalar")
def _remainder(writer: Writer, lhs: Operand, rhs: Operand) -> Value:
    """The remainder of a division that rounds down; it has the sign of rhs."""
    graph = writer.graph
    if not is_float(writer.dtype):
        return graph.mod(*writer.promoted(lhs, rhs, dtype=writer.dtype))
    x, y = _as_f64(writer, lhs, rhs)
    rest = _truncated_remainder(graph, x, y, writer.dtype)
    beside = graph.and_(graph.ne(rest, 0.0), graph.xor(graph.lt(rest, 0.0), graph.lt(y, 0.0)))
    return writer.result(graph.select(beside, graph.add(rest, y), rest))


def _as_f64(writer: Writer, lhs: Operand, rhs: Operand) -> tuple[Value, Value]:
    """Both in f64, after they were rounded to the type of the result."""
    x, y = (writer.cast(writer.tensor(operand, writer.dtype), "f64") for operand in (lhs, rhs))
    return x, y


_STEPS = {"f16": 2, "bf16": 6, "f32": 6, "f64": 4}
"""How many times 24 bits of the quotient are taken off: more than a quotient has that means something."""
_STEP_BITS = 24
_LARGEST_SCALED = 2.0**990
"""Up to here a divisor can be split in halves without overflow."""


def _truncated_remainder(graph: Graph, x: Value, y: Value, dtype: str) -> Value:
    """The exact remainder with the sign of x, computed with magnitudes; NaN where the steps do not reach it.

    In each step a multiple of y times a power of two is taken off |x|. The factor has 24 bits, and the divisor 24 or
    two halves of 26, so that products and differences are exact. A factor that was rounded up leaves a negative rest,
    which the next step or the last line makes up for.
    """
    rest, divisor = graph.abs(x), graph.abs(y)
    for step in reversed(range(_STEPS[dtype])):
        rest = _take_off(graph, rest, divisor, 2.0 ** (step * _STEP_BITS), dtype == "f64")
    rest = graph.select(graph.lt(rest, 0.0), graph.add(rest, divisor), rest)
    rest = graph.select(graph.lt(rest, divisor), rest, math.nan)
    return graph.select(graph.lt(x, 0.0), graph.neg(rest), rest)


def _take_off(graph: Graph, rest: Value, divisor: Value, scale: float, in_halves: bool) -> Value:
    """The rest less the largest multiple of `scale * divisor` that it holds."""
    scaled = graph.mul(divisor, scale) if scale > 1 else divisor
    factor = graph.floor(graph.div(rest, scaled))
    less = rest
    for part in _halves(graph, scaled) if in_halves else [scaled]:
        less = graph.sub(less, graph.mul(factor, part))
    # A divisor beyond the limit is larger than the rest, or is left to the next step.
    return graph.select(graph.le(scaled, _LARGEST_SCALED), less, rest)


def _halves(graph: Graph, value: Value) -> list[Value]:
    """Veltkamp's split: two numbers of 26 bits whose sum is the value."""
    spread = graph.mul(value, 2.0**27 + 1)
    high = graph.sub(spread, graph.sub(spread, value))
    return [high, graph.sub(value, high)]
