"""ATen's powers, of floats and of integers; integers wrap around."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Number, Operand, Writer, is_bool, is_float, row, wide
from aicf.frontends.torch.ops.elementwise import square

_KNOWN: Mapping[float, Callable[[Graph, Value], Value]] = {
    -2.0: lambda graph, x: graph.reciprocal(square(graph, x)),
    -1.0: lambda graph, x: graph.reciprocal(x),
    -0.5: lambda graph, x: graph.rsqrt(x),
    0.5: lambda graph, x: graph.sqrt(x),
    1.0: lambda graph, x: x,
    2.0: square,
    3.0: lambda graph, x: graph.mul(square(graph, x), x),
}
"""Exponents for which there is a shorter way, the one that PyTorch takes too."""


@row("pow.Tensor_Scalar")
def _pow_of_tensor(writer: Writer, x: Value, exponent: Number) -> Value:
    """x to a power that is a number."""
    if exponent == 0:
        return writer.full(writer.shape, 1, writer.dtype)
    if not is_float(writer.dtype):
        return _whole_product(writer.graph, writer.cast(x, writer.dtype), int(exponent))
    x = writer.cast(x, wide(writer.dtype))
    known = _KNOWN.get(float(exponent))
    return writer.result(known(writer.graph, x) if known else writer.graph.pow(x, float(exponent)))


@row("pow.Tensor_Tensor", "pow.Scalar")
def _pow(writer: Writer, base: Operand, exponent: Value) -> Value:
    """base to a power that is a tensor."""
    if is_float(writer.dtype):
        one, other = writer.promoted(base, exponent, dtype=wide(writer.dtype))
        return writer.result(writer.graph.pow(one, other))
    one, other = (writer.expand(writer.tensor(each, writer.dtype), writer.shape) for each in (base, exponent))
    if is_bool(writer.dtype):
        return writer.graph.or_(one, writer.graph.not_(other))
    return _whole_power(writer.graph, one, other)


def _whole_product(graph: Graph, x: Value, count: int) -> Value:
    """x multiplied so many times, by squaring."""
    if count == 1 or is_bool(x.dtype):
        return x
    half = _whole_product(graph, x, count // 2)
    full = square(graph, half)
    return graph.mul(full, x) if count % 2 else full


_BITS = 7
"""Bits of an exponent that is at most 65: a larger power of a number beyond 1 overflows, and what is left of it when it
wraps around is no number that a model means."""


def _whole_power(graph: Graph, x: Value, y: Value) -> Value:
    """Powers of integers by squaring; with a negative exponent the result is 0, unless x is 1 or -1."""
    odd = graph.and_(y, 1)
    negative = graph.lt(y, 0)
    bounded = graph.select(graph.ge(y, 64), graph.add(odd, 64), y)
    exponent = graph.select(negative, odd, bounded)
    power, factor = graph.constant(1, x.shape, x.dtype), x
    for bit in range(_BITS):
        taken = graph.ne(graph.and_(exponent, 1 << bit), 0)
        power = graph.select(taken, graph.mul(power, factor), power)
        factor = square(graph, factor)
    vanishes = graph.and_(negative, graph.ne(graph.abs(x), 1))
    return graph.select(vanishes, 0, power)
