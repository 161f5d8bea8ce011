"""Meanings of elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.semantics.base import Array, Meaning, binary, coefficient, unary

SQRT_HALF = math.sqrt(0.5)


SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


GELU_CUBIC = 0.044715
"""Coefficient of the tanh approximation of GELU (Hendrycks and Gimpel, 2016)."""


HARD_SWISH_SLOPE = 1 / 6


_erf = cast("Callable[[Array], Array]", np.vectorize(math.erf, otypes=[np.float64]))


def erf(x: Array) -> Array:
    """The error function, in the operand's float type."""
    return _erf(x).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``, by the form that does not overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def divide(a: Array, b: Array) -> Array:
    """Quotient; of integers truncated toward zero, and 0 for a zero divisor."""
    if a.dtype.kind == "f":
        return a / b
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = a // divisor
    inexact = quotient * divisor != a
    toward_zero = inexact & ((a < 0) != (divisor < 0))
    return np.where(b == 0, 0, quotient + toward_zero).astype(a.dtype)


def floor_divide(a: Array, b: Array) -> Array:
    """Integer quotient rounded down, 0 for a zero divisor."""
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b).astype(b.dtype)).astype(a.dtype)


def modulo(a: Array, b: Array) -> Array:
    """What :func:`floor_divide` leaves: the sign of the divisor, and ``a`` itself for a zero divisor."""
    return np.where(b == 0, a, a % np.where(b == 0, 1, b).astype(b.dtype)).astype(a.dtype)


def to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate floats toward zero, saturating; NaN gives 0."""
    limits = np.iinfo(dtype)
    whole = np.trunc(x)
    # The largest int64 is no float64: compare with the power of two above it, which is.
    above, below = whole >= float(limits.max + 1), whole < float(limits.min)
    inside = np.where(above | below | np.isnan(whole), 0, whole).astype(dtype)
    return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside))


def _cast(op: logical.CastOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    target = op.info.element
    if target.kind == "bool":
        return x != 0
    if target.kind == "int" and x.dtype.kind == "f":
        return to_integer(x, target.dtype)
    return x


def _bitcast(op: logical.BitcastOp, operands: Sequence[Array]) -> Array:
    # Floats are computed with in wider types than their own.
    stored = operands[0].astype(tensor_info(op.operand.type).element.dtype)
    element = op.info.element
    return stored.view(np.uint8) != 0 if element.kind == "bool" else stored.view(element.dtype)


def shift_left(x: Array, amount: Array) -> Array:
    """x * 2 ** amount, wrapping around; 0 for an amount that is no number of bits."""
    bits = 8 * x.dtype.itemsize
    inside = (amount >= 0) & (amount < bits)
    return np.where(inside, np.left_shift(x, np.where(inside, amount, 0)), 0).astype(x.dtype)


def shift_right(x: Array, amount: Array) -> Array:
    """x / 2 ** amount, rounded down; what only the sign is left of for an amount that is no number of bits."""
    bits = 8 * x.dtype.itemsize
    inside = (amount >= 0) & (amount < bits)
    sign = np.where(x < 0, -1, 0)
    return np.where(inside, np.right_shift(x, np.where(inside, amount, 0)), sign).astype(x.dtype)


def _gelu(op: logical.GeluOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    element = op.info.element
    if op.approximate.data == "tanh":
        inner = x + coefficient(GELU_CUBIC, element) * (x * x * x)
        return 0.5 * x * (1 + np.tanh(coefficient(SQRT_2_OVER_PI, element) * inner))
    return 0.5 * x * (1 + erf(x * coefficient(SQRT_HALF, element)))


def _clamp(op: logical.ClampOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    low, high = op.bounds
    if low is not None:
        x = np.maximum(x, x.dtype.type(low))
    return x if high is None else np.minimum(x, x.dtype.type(high))


def _leaky_relu(op: logical.LeakyReluOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.where(x > 0, x, coefficient(op.negative_slope.value.data, op.info.element) * x)


def _elu(op: logical.EluOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.where(x > 0, x, coefficient(op.alpha.value.data, op.info.element) * np.expm1(x))


def _softplus(op: logical.SoftplusOp, operands: Sequence[Array]) -> Array:
    beta = coefficient(op.beta.value.data, op.info.element)
    return np.logaddexp(0, beta * operands[0]) / beta


def hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """A line cut off at 0 and 1."""
    return np.clip(alpha * x + beta, 0, 1)


def _hard_sigmoid(op: logical.HardSigmoidOp, operands: Sequence[Array]) -> Array:
    alpha, beta = (coefficient(number.value.data, op.info.element) for number in (op.alpha, op.beta))
    return hard_sigmoid(operands[0], alpha, beta)


def _hard_swish(op: logical.HardSwishOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return x * hard_sigmoid(x, coefficient(HARD_SWISH_SLOPE, op.info.element), 0.5)


_COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare(op: logical.CompareOp, operands: Sequence[Array]) -> Array:
    return _COMPARISONS[op.predicate.data](*operands)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.AddOp: binary(np.add),
    logical.SubOp: binary(np.subtract),
    logical.MulOp: binary(np.multiply),
    logical.DivOp: binary(divide),
    logical.MaxOp: binary(np.maximum),
    logical.MinOp: binary(np.minimum),
    logical.NegOp: unary(np.negative),
    logical.ExpOp: unary(np.exp),
    logical.LogOp: unary(np.log),
    logical.SqrtOp: unary(np.sqrt),
    logical.RsqrtOp: unary(lambda x: 1 / np.sqrt(x)),
    logical.TanhOp: unary(np.tanh),
    logical.ErfOp: unary(erf),
    logical.ReluOp: unary(lambda x: np.maximum(x, x.dtype.type(0))),
    logical.SigmoidOp: unary(sigmoid),
    logical.SiluOp: unary(lambda x: x * sigmoid(x)),
    logical.GeluOp: _gelu,
    logical.AbsOp: unary(np.abs),
    logical.SignOp: unary(np.sign),
    logical.PowOp: binary(np.power),
    logical.FloorDivOp: binary(floor_divide),
    logical.ModOp: binary(modulo),
    logical.ClampOp: _clamp,
    logical.Expm1Op: unary(np.expm1),
    logical.Log1pOp: unary(np.log1p),
    logical.SinOp: unary(np.sin),
    logical.CosOp: unary(np.cos),
    logical.TanOp: unary(np.tan),
    logical.AsinOp: unary(np.arcsin),
    logical.AcosOp: unary(np.arccos),
    logical.AtanOp: unary(np.arctan),
    logical.SinhOp: unary(np.sinh),
    logical.CoshOp: unary(np.cosh),
    logical.AsinhOp: unary(np.arcsinh),
    logical.AcoshOp: unary(np.arccosh),
    logical.AtanhOp: unary(np.arctanh),
    logical.FloorOp: unary(np.floor),
    logical.CeilOp: unary(np.ceil),
    logical.RoundOp: unary(np.rint),
    logical.ReciprocalOp: unary(lambda x: 1 / x),
    logical.LeakyReluOp: _leaky_relu,
    logical.EluOp: _elu,
    logical.SoftplusOp: _softplus,
    logical.HardSigmoidOp: _hard_sigmoid,
    logical.HardSwishOp: _hard_swish,
    logical.AndOp: binary(np.bitwise_and),
    logical.OrOp: binary(np.bitwise_or),
    logical.XorOp: binary(np.bitwise_xor),
    logical.NotOp: unary(np.invert),
    logical.ShiftLeftOp: binary(shift_left),
    logical.ShiftRightOp: binary(shift_right),
    logical.CompareOp: _compare,
    logical.IsNanOp: unary(np.isnan),
    logical.SelectOp: lambda op, operands: np.where(operands[0], operands[1], operands[2]),
    logical.CastOp: _cast,
    logical.BitcastOp: _bitcast,
}
