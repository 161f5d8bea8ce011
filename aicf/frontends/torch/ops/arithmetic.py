"""Arithmetic: elementwise ATen ops, whose operands are broadcast and promoted.

Division and remainders are in ``division.py``, powers in ``powers.py``.
"""

from __future__ import annotations

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Number, Operand, Writer, is_bool, row, wide
from aicf.frontends.torch.ops.elementwise import computed_in, formula, is_negative, operator


@row("add.Tensor", "add.Scalar")
def _add(writer: Writer, lhs: Operand, rhs: Operand, alpha: Number = 1) -> Value:
    """lhs + alpha * rhs; of truth values, whether one of them holds."""
    if is_bool(writer.dtype):
        one, other = writer.promoted(lhs, rhs, dtype=writer.dtype)
        return (
            writer.graph.or_(one, other) if alpha else writer.expand(writer.tensor(one, "i1"), writer.shape)
        )
    one, other = _scaled(writer, lhs, rhs, alpha)
    return writer.result(writer.graph.add(one, other))


@row("sub.Tensor", "sub.Scalar")
def _sub(writer: Writer, lhs: Operand, rhs: Operand, alpha: Number = 1) -> Value:
    """lhs - alpha * rhs."""
    one, other = _scaled(writer, lhs, rhs, alpha)
    return writer.result(writer.graph.sub(one, other))


@row("rsub.Tensor", "rsub.Scalar")
def _rsub(writer: Writer, lhs: Operand, rhs: Operand, alpha: Number = 1) -> Value:
    """rhs - alpha * lhs."""
    return _sub(writer, rhs, lhs, alpha)


def _scaled(writer: Writer, lhs: Operand, rhs: Operand, alpha: Number) -> list[Operand]:
    """lhs and alpha * rhs."""
    if not isinstance(rhs, Value):
        rhs, alpha = rhs * alpha, 1
    dtype = wide(writer.dtype) if alpha != 1 else computed_in(writer, lhs, rhs)
    one, other = writer.promoted(lhs, rhs, dtype=dtype)
    return [one, other if alpha == 1 else writer.graph.mul(other, writer.operand(alpha, dtype))]


@row("mul.Tensor", "mul.Scalar")
def _mul(writer: Writer, lhs: Operand, rhs: Operand) -> Value:
    """lhs * rhs; of truth values, whether both hold."""
    one, other = writer.promoted(lhs, rhs, dtype=computed_in(writer, lhs, rhs))
    product = writer.graph.and_(one, other) if is_bool(writer.dtype) else writer.graph.mul(one, other)
    return writer.result(product)


@operator("neg.default")
def _neg(graph: Graph, x: Value) -> Value:
    """-x."""
    return graph.neg(x)


@operator("abs.default")
def _abs(graph: Graph, x: Value) -> Value:
    """The magnitude of x."""
    return x if is_bool(x.dtype) else graph.abs(x)


@operator("reciprocal.default")
def _reciprocal(graph: Graph, x: Value) -> Value:
    """1 / x."""
    return graph.reciprocal(x)


@operator("square.default")
def _square(graph: Graph, x: Value) -> Value:
    """x * x."""
    return graph.mul(x, x)


@row("addcmul.default")
def _addcmul(writer: Writer, x: Value, first: Value, second: Value, *, value: Number = 1) -> Value:
    """x + value * first * second."""
    x, first, second = (writer.cast(one, wide(writer.dtype)) for one in (x, first, second))
    product = writer.graph.mul(first, second)
    if value != 1:
        product = writer.graph.mul(product, writer.operand(value, product.dtype))
    return writer.result(writer.graph.add(x, product))


@row("prims.fma.default")
def _fma(writer: Writer, first: Operand, second: Operand, addend: Operand) -> Value:
    """first * second + addend, as which PyTorch writes the steps of optimizers."""
    one, other, third = writer.promoted(first, second, addend, dtype=wide(writer.dtype))
    return writer.result(writer.graph.add(writer.graph.mul(one, other), third))


@formula("addcdiv.default")
def _addcdiv(graph: Graph, x: Value, first: Value, second: Value, *, value: Number = 1) -> Value:
    """x + value * first / second."""
    return graph.add(x, graph.div(first if value == 1 else graph.mul(first, float(value)), second))


@formula("lerp.Scalar", "lerp.Tensor")
def _lerp(graph: Graph, start: Value, end: Value, weight: Operand) -> Value:
    """start + weight * (end - start), from that end which is nearer."""
    way = graph.sub(end, start)
    if not isinstance(weight, Value):
        return (
            _from_start(graph, start, way, weight)
            if abs(weight) < 0.5
            else _from_end(graph, end, way, weight)
        )
    near = graph.lt(graph.abs(weight), 0.5)
    return graph.select(near, _from_start(graph, start, way, weight), _from_end(graph, end, way, weight))


def _from_start(graph: Graph, start: Value, way: Value, weight: Operand) -> Value:
    return graph.add(start, graph.mul(way, weight))


def _from_end(graph: Graph, end: Value, way: Value, weight: Operand) -> Value:
    rest = graph.sub(1.0, weight) if isinstance(weight, Value) else 1.0 - weight
    return graph.sub(end, graph.mul(way, rest))


@row("copysign.Tensor", "copysign.Scalar")
def _copysign(writer: Writer, x: Value, sign: Operand) -> Value:
    """The magnitude of x with the sign of the other."""
    size = writer.graph.abs(writer.cast(x, writer.dtype))
    negative = is_negative(writer.graph, writer.tensor(sign, writer.dtype))
    return writer.graph.select(negative, writer.graph.neg(size), size)
