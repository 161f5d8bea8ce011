"""ATen ops that compare, select by a condition, and take the larger or the smaller of two."""

from __future__ import annotations

from collections.abc import Mapping

from aicf.dialects.logical import Predicate
from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Number, Operand, Writer, is_float, result_type, row
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


@operator("maximum.default", "max.other", "clamp_min.default", "clamp_min.Tensor")
def _maximum(graph: Graph, lhs: Value, rhs: Operand) -> Value:
    """The larger of the two; NaN if either is NaN."""
    return graph.max(lhs, rhs)


@operator("minimum.default", "min.other", "clamp_max.default", "clamp_max.Tensor")
def _minimum(graph: Graph, lhs: Value, rhs: Operand) -> Value:
    """The smaller of the two; NaN if either is NaN."""
    return graph.min(lhs, rhs)


@operator("fmax.default")
def _fmax(graph: Graph, lhs: Value, rhs: Value) -> Value:
    """The larger of the two, or that one that is a number."""
    return _numbers_first(graph, lhs, rhs, graph.max(lhs, rhs))


@operator("fmin.default")
def _fmin(graph: Graph, lhs: Value, rhs: Value) -> Value:
    """The smaller of the two, or that one that is a number."""
    return _numbers_first(graph, lhs, rhs, graph.min(lhs, rhs))


def _numbers_first(graph: Graph, lhs: Value, rhs: Value, of_numbers: Value) -> Value:
    if not is_float(lhs.dtype):
        return of_numbers
    return graph.select(graph.is_nan(lhs), rhs, graph.select(graph.is_nan(rhs), lhs, of_numbers))


@row("clamp.default", "clip.default", "hardtanh.default")
def _clamp(writer: Writer, x: Value, low: Number | None = None, high: Number | None = None) -> Value:
    """min(max(x, low), high); either bound may be missing."""
    x = writer.cast(x, writer.dtype)
    if is_float(writer.dtype) and all(bound is None or bound == bound for bound in (low, high)):
        low, high = (None if bound is None else float(bound) for bound in (low, high))
        return writer.graph.clamp(x, low, high)
    return _clamp_tensor(writer, x, low, high)


@row("clamp.Tensor", "clip.Tensor")
def _clamp_tensor(writer: Writer, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """min(max(x, low), high); NaN where x or a bound is NaN."""
    x = writer.cast(x, writer.dtype)
    if low is not None:
        x = writer.graph.max(x, writer.operand(low, writer.dtype))
    return x if high is None else writer.graph.min(x, writer.operand(high, writer.dtype))
