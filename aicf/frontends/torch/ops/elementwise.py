"""Shared by rows of elementwise ops: the type that they compute in, and small formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Lower, Number, Operand, OtherGradient, Writer, is_float, row, wide

Formula = Callable[..., Value]
"""Takes the graph, then the op's operands; tensors come in one element type."""


def computed_in(writer: Writer, *numbers: Operand) -> str:
    """The type that arithmetic of the result's type is done in: f32 for halves that do not hold a number exactly."""
    dtype = writer.dtype
    literals = [number for number in numbers if not isinstance(number, Value)]
    return dtype if all(_holds(dtype, number) for number in literals) else wide(dtype)


def _holds(dtype: str, number: Number) -> bool:
    if not is_float(dtype):
        return True
    with np.errstate(over="ignore"):
        return float(element_named(dtype).dtype.type(number)) == number


def operator(*overloads: str, other_gradient: OtherGradient | None = None) -> Callable[[Formula], Formula]:
    """Enters a formula of one step: operands come in the type of the result, and it is rounded once."""

    def enter(compute: Formula) -> Formula:
        def lower(writer: Writer, *operands: Operand) -> Value:
            dtype = computed_in(writer, *operands)
            return writer.result(compute(writer.graph, *(writer.operand(one, dtype) for one in operands)))

        return _entered(compute, lower, overloads, other_gradient)

    return enter


def formula(
    *overloads: str, dtype: str | None = None, other_gradient: OtherGradient | None = None
) -> Callable[[Formula], Formula]:
    """Enters a formula of several steps: tensors come as f32 or f64, numbers as they are, the result is rounded.

    Args:
        overloads: What the formula computes.
        dtype: The type to compute in, whatever the result's is.
        other_gradient: As in `row`.
    """

    def enter(compute: Formula) -> Formula:
        def lower(writer: Writer, *operands: Operand, **named: object) -> Value:
            joint = wide(writer.dtype) if dtype is None else dtype
            cast = [writer.cast(one, joint) if isinstance(one, Value) else one for one in operands]
            return writer.result(compute(writer.graph, *cast, **named))

        return _entered(compute, lower, overloads, other_gradient)

    return enter


def _entered(
    compute: Formula, lower: Lower, overloads: tuple[str, ...], other_gradient: OtherGradient | None
) -> Formula:
    lower.__doc__ = compute.__doc__
    row(*overloads, other_gradient=other_gradient)(lower)
    return compute


def truncated(graph: Graph, x: Value) -> Value:
    """The whole number next to x on the side of 0."""
    return graph.select(graph.lt(x, 0.0), graph.ceil(x), graph.floor(x))


def is_negative(graph: Graph, x: Value) -> Value:
    """Whether the sign bit of a float is set, that of -0 and of NaN too."""
    same_size = {2: "i16", 4: "i32", 8: "i64"}[element_named(x.dtype).bytes]
    return graph.lt(graph.bitcast(x, same_size), 0)


def square(graph: Graph, x: Value) -> Value:
    """x * x."""
    return graph.mul(x, x)


def complement(graph: Graph, x: Value) -> Value:
    """1 - x."""
    return graph.sub(1.0, x)


def polynomial(graph: Graph, x: Value, coefficients: tuple[float, ...]) -> Value:
    """The polynomial of x by Horner's scheme; the coefficient of the highest power comes first."""
    first, second, *rest = coefficients
    total = graph.add(graph.mul(x, first), second)
    for coefficient in rest:
        total = graph.add(graph.mul(total, x), coefficient)
    return total
