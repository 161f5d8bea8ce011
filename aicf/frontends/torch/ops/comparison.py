"""ATen ops that compare, select by a condition, and return the larger or the smaller of two."""

from __future__ import annotations

from collections.abc import Mapping

from aicf.dialects.logical import Predicate
from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import ONE_OF_EQUALS, Number, Operand, Writer, is_float, result_type, row
from aicf.frontends.torch.ops.elementwise import operator

_PREDICATES: Mapping[str, Predicate] = {name: name for name in ("eq", "ne", "lt", "le", "gt", "ge")}  # pyright: ignore[reportAssignmentType]


def _enter_comparison(name: str, predicate: Predicate) -> None:
    @row(f"{name}.Tensor", f"{name}.Scalar")
    def _compare(writer: Writer, lhs: Operand, rhs: Operand) -> Value:
        one, other = writer.promoted(lhs, rhs, dtype=result_type(lhs, rhs))
        return writer.graph.compare(predicate, one, other)


for _name, _predicate in _PREDICATES.items():
    _enter_comparison(_name, _predicate)


@row("isclose.default")
def _isclose(
    writer: Writer, x: Value, y: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    """Whether |x - y| <= atol + rtol * |y|, or both are equal."""
    graph, dtype = writer.graph, result_type(x, y)
    x, y = writer.cast(x, dtype), writer.cast(y, dtype)
    same = graph.eq(x, y)
    if not is_float(dtype):
        x, y = writer.cast(x, "f64"), writer.cast(y, "f64")
    elif equal_nan:
        same = graph.or_(same, graph.and_(graph.is_nan(x), graph.is_nan(y)))
    x, y = writer.widened(x), writer.widened(y)
    distance = graph.abs(graph.sub(x, y))
    allowed = graph.add(graph.mul(graph.abs(y), rtol), atol)
    near = graph.and_(graph.le(distance, allowed), graph.lt(distance, float("inf")))
    return graph.or_(same, near)


# Logic


@row("logical_and.default")
def _logical_and(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """Whether both are other than 0."""
    return writer.graph.and_(writer.cast(lhs, "i1"), writer.cast(rhs, "i1"))


@row("logical_or.default")
def _logical_or(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """Whether one of them is other than 0."""
    return writer.graph.or_(writer.cast(lhs, "i1"), writer.cast(rhs, "i1"))


@row("logical_xor.default")
def _logical_xor(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """Whether just one of them is other than 0."""
    return writer.graph.xor(writer.cast(lhs, "i1"), writer.cast(rhs, "i1"))


@row("logical_not.default")
def _logical_not(writer: Writer, x: Value) -> Value:
    """Whether it is 0."""
    return writer.graph.not_(writer.cast(x, "i1"))


# Selection


@row("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(writer: Writer, condition: Value, on_true: Operand, on_false: Operand) -> Value:
    """on_true where the condition holds, else on_false."""
    one, other = (writer.operand(operand, writer.dtype) for operand in (on_true, on_false))
    if not isinstance(one, Value):
        one = writer.full((), one, writer.dtype)
    return writer.graph.select(writer.cast(condition, "i1"), one, other)


# The larger and the smaller of two


@operator("maximum.default", "max.other")
def _maximum(graph: Graph, lhs: Value, rhs: Operand) -> Value:
    """The larger of the two; NaN if either is NaN."""
    return graph.max(lhs, rhs)


@operator("minimum.default", "min.other")
def _minimum(graph: Graph, lhs: Value, rhs: Operand) -> Value:
    """The smaller of the two; NaN if either is NaN."""
    return graph.min(lhs, rhs)


@operator("fmax.default", other_gradient=ONE_OF_EQUALS)
def _fmax(graph: Graph, lhs: Value, rhs: Value) -> Value:
    """The larger of the two, or that one that is a number."""
    return _numbers_first(graph, lhs, rhs, graph.max(lhs, rhs))


@operator("fmin.default", other_gradient=ONE_OF_EQUALS)
def _fmin(graph: Graph, lhs: Value, rhs: Value) -> Value:
    """The smaller of the two, or that one that is a number."""
    return _numbers_first(graph, lhs, rhs, graph.min(lhs, rhs))


def _numbers_first(graph: Graph, lhs: Value, rhs: Value, of_numbers: Value) -> Value:
    if not is_float(lhs.dtype):
        return of_numbers
    return graph.select(graph.is_nan(lhs), rhs, graph.select(graph.is_nan(rhs), lhs, of_numbers))


@row("clamp.default", "clip.default", "clamp_min.default")
def _clamp(writer: Writer, x: Value, low: Number | None = None, high: Number | None = None) -> Value:
    """min(max(x, low), high); either bound may be missing."""
    x = writer.cast(x, writer.dtype)
    if is_float(writer.dtype) and all(bound is None or bound == bound for bound in (low, high)):
        low, high = (None if bound is None else float(bound) for bound in (low, high))
        return writer.graph.clamp(x, low, high)
    return _clamp_tensor(writer, x, low, high)


@row("clamp.Tensor", "clip.Tensor", "clamp_min.Tensor")
def _clamp_tensor(writer: Writer, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """min(max(x, low), high); NaN where x or a bound is NaN."""
    x = writer.cast(x, writer.dtype)
    if low is not None:
        x = _bounded(writer, x, writer.operand(low, writer.dtype), "ge")
    return x if high is None else _bounded(writer, x, writer.operand(high, writer.dtype), "le")


@row("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(writer: Writer, x: Value, high: Operand) -> Value:
    """min(x, high)."""
    return _clamp_tensor(writer, x, None, high) if isinstance(high, Value) else _clamp(writer, x, None, high)


@row("hardtanh.default")
def _hardtanh(writer: Writer, x: Value, low: Number = -1.0, high: Number = 1.0) -> Value:
    """min(max(x, low), high)."""
    return open_clamp(writer, x, low, high)


def _bounded(writer: Writer, x: Value, bound: Operand, predicate: Predicate) -> Value:
    """x where it is within the bound, else the bound; NaN where either is. On the bound x has all that is passed back,
    where a maximum would share it."""
    graph = writer.graph
    if not (writer.is_differentiated and is_float(writer.dtype)):
        return graph.max(x, bound) if predicate == "ge" else graph.min(x, bound)
    return graph.select(graph.or_(graph.compare(predicate, x, bound), graph.ne(x, x)), x, bound)


def open_clamp(writer: Writer, x: Value, low: Number, high: Number) -> Value:
    """min(max(x, low), high), which passes nothing back on a bound."""
    graph, y = writer.graph, _clamp(writer, x, low, high)
    if not (writer.is_differentiated and is_float(writer.dtype)):
        return y
    return graph.select(graph.and_(graph.gt(x, float(low)), graph.lt(x, float(high))), x, graph.detach(y))
