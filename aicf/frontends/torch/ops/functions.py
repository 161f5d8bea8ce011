"""ATen's non-arithmetic functions of one or two numbers: roots, logarithms, angles, rounding, kinds of floats.

Of integers and truth values they give floats, as PyTorch says of the result. Others are in ``special.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import ml_dtypes

from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import ZERO_AT_ZERO, Operand, OtherGradient, Writer, is_bool, is_float, row
from aicf.frontends.torch.ops.elementwise import complement, formula, is_negative, operator, square, truncated

# One op for one

_FUNCTIONS: Mapping[str, str] = {
    name: name
    for name in (
        *(
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "erf",
            "exp",
            "expm1",
            "log",
            "log1p",
        ),
        *("rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
    )
}
"""ATen's name, and that of the builder's method."""
_ROUNDINGS: Mapping[str, Callable[[Graph, Value], Value]] = {
    "ceil": lambda graph, x: graph.ceil(x),
    "fix": truncated,
    "floor": lambda graph, x: graph.floor(x),
    "round": lambda graph, x: graph.round(x),
    "trunc": truncated,
}
"""Of integers they are the operand itself."""


def _enter_function(name: str, method: str) -> None:
    @operator(f"{name}.default")
    def _function(graph: Graph, x: Value) -> Value:
        return getattr(graph, method)(x)


def _enter_rounding(name: str, compute: Callable[[Graph, Value], Value]) -> None:
    @operator(f"{name}.default")
    def _rounding(graph: Graph, x: Value) -> Value:
        return compute(graph, x) if is_float(x.dtype) else x


for _name, _method in _FUNCTIONS.items():
    _enter_function(_name, _method)
for _name, _compute in _ROUNDINGS.items():
    _enter_rounding(_name, _compute)


# Rounding


@formula("round.decimals")
def _round_decimals(graph: Graph, x: Value, *, decimals: int = 0) -> Value:
    """x rounded to a number of decimals, or to a power of ten if that is negative."""
    if not is_float(x.dtype):
        return x
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return graph.mul(graph.round(graph.div(x, scale)), scale)
    return graph.div(graph.round(graph.mul(x, scale)), scale)


@operator("frac.default")
def _frac(graph: Graph, x: Value) -> Value:
    """The fractional part of x."""
    return graph.sub(x, truncated(graph, x))


# Exponentials and logarithms


@formula("exp2.default")
def _exp2(graph: Graph, x: Value) -> Value:
    """2 to the power x."""
    return graph.pow(2.0, x)


# In f64, so that a power of the base has a whole logarithm.


@formula("log2.default", dtype="f64")
def _log2(graph: Graph, x: Value) -> Value:
    """The logarithm of base 2."""
    return graph.div(graph.log(x), math.log(2))


@formula("log10.default", dtype="f64")
def _log10(graph: Graph, x: Value) -> Value:
    """The logarithm of base 10."""
    return graph.div(graph.log(x), math.log(10))


@formula("logaddexp.default")
def _logaddexp(graph: Graph, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)), without overflow."""
    return log_of_sum(graph, x, y)


@formula("logaddexp2.default")
def _logaddexp2(graph: Graph, x: Value, y: Value) -> Value:
    """log2(2 ** x + 2 ** y), without overflow."""
    scaled = (graph.mul(value, math.log(2)) for value in (x, y))
    return graph.div(log_of_sum(graph, *scaled), math.log(2))


def log_of_sum(graph: Graph, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)); of two infinities of one sign the same."""
    larger, distance = graph.max(x, y), graph.abs(graph.sub(x, y))
    endless = graph.and_(graph.eq(graph.abs(x), math.inf), graph.eq(x, y))
    return graph.select(endless, x, graph.add(larger, graph.log1p(graph.exp(graph.neg(distance)))))


@formula("logit.default")
def _logit(graph: Graph, x: Value, eps: float | None = None) -> Value:
    """log(x / (1 - x)), x kept away from 0 and 1 by eps."""
    if eps is not None:
        x = graph.clamp(x, eps, 1 - eps)
    return graph.log(graph.div(x, complement(graph, x)))


@formula("xlogy.Tensor", other_gradient=ZERO_AT_ZERO)
@formula("xlogy.Scalar_Other", "xlogy.Scalar_Self")
def _xlogy(graph: Graph, x: Operand, y: Operand) -> Value:
    """x * log(y), 0 where x is 0 unless y is NaN."""
    return _times_function(graph, x, y, graph.log)


@formula("special_xlog1py.default", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def _xlog1py(graph: Graph, x: Operand, y: Operand) -> Value:
    """x * log(1 + y), 0 where x is 0 unless y is NaN."""
    return _times_function(graph, x, y, graph.log1p)


def _times_function(graph: Graph, x: Operand, y: Operand, function: Callable[[Value], Value]) -> Value:
    if not isinstance(y, Value):
        assert isinstance(x, Value)
        y = graph.constant(float(y), (), x.dtype)
    if not isinstance(x, Value):
        x = graph.constant(float(x), (), y.dtype)
    product = graph.mul(x, function(y))
    return graph.select(graph.is_nan(y), y, graph.select(graph.eq(x, 0.0), 0.0, product))


@formula("ldexp.Tensor")
def _ldexp(graph: Graph, x: Value, exponent: Value) -> Value:
    """x * 2 ** exponent."""
    return graph.mul(x, graph.pow(2.0, exponent))


# Angles and lengths


@formula("atan2.default", other_gradient=OtherGradient("the gradient at two zeros is 0"))
def _atan2(graph: Graph, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), from -pi to pi."""
    height, width = graph.abs(y), graph.abs(x)
    steep = graph.gt(height, width)
    short, long = graph.min(height, width), graph.max(height, width)
    # Of two equal sizes, 0 and infinite ones too, the quotient is known.
    known = graph.select(graph.eq(long, 0.0), 0.0, graph.constant(1.0, (), x.dtype))
    slope = graph.select(graph.eq(short, long), known, graph.div(short, long))
    angle = graph.atan(slope)
    angle = graph.select(steep, graph.sub(math.pi / 2, angle), angle)
    angle = graph.select(is_negative(graph, x), graph.sub(math.pi, angle), angle)
    return graph.select(is_negative(graph, y), graph.neg(angle), angle)


@formula("hypot.default")
def _hypot(graph: Graph, x: Value, y: Value) -> Value:
    """sqrt(x * x + y * y), without overflow."""
    one, other = graph.abs(x), graph.abs(y)
    short, long = graph.min(one, other), graph.max(one, other)
    root = graph.sqrt(graph.add(square(graph, graph.div(short, long)), 1.0))
    endless = graph.or_(graph.eq(one, math.inf), graph.eq(other, math.inf))
    length = graph.select(graph.eq(long, 0.0), 0.0, graph.mul(long, root))
    return graph.select(endless, math.inf, length)


@formula("angle.default")
def _angle(graph: Graph, x: Value) -> Value:
    """The angle of a number on the line: 0, or pi if it is negative."""
    angle = graph.select(graph.lt(x, 0.0), math.pi, graph.constant(0.0, (), x.dtype))
    return graph.select(graph.is_nan(x), x, angle)


@formula("deg2rad.default")
def _deg2rad(graph: Graph, x: Value) -> Value:
    """Degrees as radians."""
    return graph.mul(x, math.pi / 180)


@formula("rad2deg.default")
def _rad2deg(graph: Graph, x: Value) -> Value:
    """Radians as degrees."""
    return graph.mul(x, 180 / math.pi)


@formula("sinc.default", other_gradient=ZERO_AT_ZERO)
def _sinc(graph: Graph, x: Value) -> Value:
    """sin(pi * x) / (pi * x), 1 at 0."""
    angle = graph.mul(x, math.pi)
    return graph.select(graph.eq(x, 0.0), 1.0, graph.div(graph.sin(angle), angle))


# Signs and steps


@operator("sign.default", "sgn.default")
def _sign(graph: Graph, x: Value) -> Value:
    """-1, 0 or 1 as x is below, at or above 0; 0 of NaN."""
    if is_bool(x.dtype):
        return x
    if not is_float(x.dtype):
        return graph.sign(x)
    return graph.select(graph.is_nan(x), 0.0, graph.sign(x))


@row("signbit.default")
def _signbit(writer: Writer, x: Value) -> Value:
    """Whether the sign is a minus, of -0 too."""
    if is_bool(x.dtype):
        return writer.full(writer.shape, 0, "i1")
    return is_negative(writer.graph, x) if is_float(x.dtype) else writer.graph.lt(x, 0)


@operator("heaviside.default")
def _heaviside(graph: Graph, x: Value, at_zero: Value) -> Value:
    """1 above 0, 0 below, and at 0 what is given."""
    if is_bool(x.dtype):
        return graph.or_(x, at_zero)
    return graph.select(graph.eq(x, 0), at_zero, graph.cast(graph.gt(x, 0), x.dtype))


# Kinds of floats


@row("isnan.default")
def _isnan(writer: Writer, x: Value) -> Value:
    """Whether x is no number."""
    return writer.graph.is_nan(x) if is_float(x.dtype) else writer.full(writer.shape, 0, "i1")


@row("isfinite.default")
def _isfinite(writer: Writer, x: Value) -> Value:
    """Whether x is a number and not infinite."""
    if not is_float(x.dtype):
        return writer.full(writer.shape, 1, "i1")
    return writer.graph.lt(writer.graph.abs(x), math.inf)


@row("isinf.default")
def _isinf(writer: Writer, x: Value) -> Value:
    """Whether x is one of the two infinities."""
    return _is(writer, writer.graph.abs(x), math.inf) if is_float(x.dtype) else _is(writer, x, math.inf)


@row("isposinf.default")
def _isposinf(writer: Writer, x: Value) -> Value:
    """Whether x is infinite and positive."""
    return _is(writer, x, math.inf)


@row("isneginf.default")
def _isneginf(writer: Writer, x: Value) -> Value:
    """Whether x is infinite and negative."""
    return _is(writer, x, -math.inf)


def _is(writer: Writer, x: Value, infinity: float) -> Value:
    return writer.graph.eq(x, infinity) if is_float(x.dtype) else writer.full(writer.shape, 0, "i1")


@row("nan_to_num.default")
def _nan_to_num(
    writer: Writer,
    x: Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    """x with numbers in place of NaN and the infinities: by default 0 and the largest numbers of the type."""
    if not is_float(x.dtype):
        return x
    graph = writer.graph
    most = float(cast(Any, ml_dtypes.finfo(element_named(x.dtype).dtype)).max)
    upper, lower = most if posinf is None else posinf, -most if neginf is None else neginf
    found = graph.select(graph.is_nan(x), 0.0 if nan is None else float(nan), x)
    found = graph.select(graph.eq(x, math.inf), upper, found)
    return graph.select(graph.eq(x, -math.inf), lower, found)
