"""The meaning of every logical op, one NumPy function each, in one table.

A meaning gets its operands in the type it computes in (``evaluate.py`` chooses it: float64, float32 for f16
and bf16, integers as they are) and returns the result before rounding. It is the definition that kernels are
tested against, so it is written for clarity: the formulas of the ops' docstrings, NumPy and ``math.erf``
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import WHOLE, int_values
from aicf.dialects.types import ElementType, element_named

Array: TypeAlias = NDArray[Any]
Meaning: TypeAlias = Callable[[Any, Sequence[Array]], Array]
"""From an op, for its properties, and its operands to its result."""

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715
"""Coefficient of the tanh approximation of GELU (Hendrycks and Gimpel, 2016)."""

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


def to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate floats toward zero, saturating; NaN gives 0."""
    limits = np.iinfo(dtype)
    whole = np.trunc(x)
    # The largest int64 is no float64: compare with the power of two above it, which is.
    above, below = whole >= float(limits.max + 1), whole < float(limits.min)
    inside = np.where(above | below | np.isnan(whole), 0, whole).astype(dtype)
    return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside))


def composite_element(element: ElementType) -> ElementType:
    """The element type in which a composite (gelu, softmax, layer_norm and the like) is defined: f64, else f32."""
    return element if element.name == "f64" else element_named("f32")


def coefficient(value: float, element: ElementType) -> float:
    """A literal of a composite's formula: rounded to the type it is defined in, as lowered IR has it."""
    return float(composite_element(element).dtype.type(value))


def _cast(op: logical.CastOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    target = op.info.element
    if target.kind == "bool":
        return x != 0
    if target.kind == "int" and x.dtype.kind == "f":
        return to_integer(x, target.dtype)
    return x


def _gelu(op: logical.GeluOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    element = op.info.element
    if op.approximate.data == "tanh":
        inner = x + coefficient(GELU_CUBIC, element) * (x * x * x)
        return 0.5 * x * (1 + np.tanh(coefficient(SQRT_2_OVER_PI, element) * inner))
    return 0.5 * x * (1 + erf(x * coefficient(SQRT_HALF, element)))


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


def transposed(matrix: Array) -> Array:
    """The last two dimensions swapped, in row-major order: NumPy sums a product with a mere view in another order."""
    return np.asarray(np.swapaxes(matrix, -1, -2), order="C")


def _matmul(op: logical.MatmulOp, operands: Sequence[Array]) -> Array:
    a, b = operands
    if op.transpose_a is not None:
        a = transposed(a)
    if op.transpose_b is not None:
        b = transposed(b)
    return np.matmul(a, b)


def _linear(op: logical.LinearOp, operands: Sequence[Array]) -> Array:
    x, weight, *bias = operands
    product = np.matmul(x, transposed(weight))
    return product + bias[0] if bias else product


def _reduce_sum(op: logical.ReduceSumOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.sum(x, axis=int_values(op.axes), keepdims=op.keepdims is not None, dtype=x.dtype)


def _reduce_mean(op: logical.ReduceMeanOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axes = int_values(op.axes)
    count = math.prod(x.shape[axis] for axis in axes)
    return np.sum(x, axis=axes, keepdims=op.keepdims is not None, dtype=x.dtype) / count


def _reduce_max(op: logical.ReduceMaxOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.max(x, axis=int_values(op.axes), keepdims=op.keepdims is not None)


def _softmax(op: logical.SoftmaxOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axis = op.axis.value.data
    exponentials = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return exponentials / np.sum(exponentials, axis=axis, keepdims=True)


def _layer_norm(op: logical.LayerNormOp, operands: Sequence[Array]) -> Array:
    x, scale, bias = operands
    axes = logical.normalized_axes(op)
    centered = x - np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(centered * centered, axis=axes, keepdims=True)
    epsilon = coefficient(op.epsilon.value.data, op.info.element)
    return centered * (1 / np.sqrt(variance + epsilon)) * scale + bias


def _reshape(op: logical.ReshapeOp, operands: Sequence[Array]) -> Array:
    return operands[0].reshape(op.info.shape)


def _transpose(op: logical.TransposeOp, operands: Sequence[Array]) -> Array:
    return np.transpose(operands[0], int_values(op.permutation))


def _broadcast(op: logical.BroadcastOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    shape = op.info.shape
    aligned = [1] * len(shape)
    for size, position in zip(x.shape, int_values(op.dimensions), strict=True):
        aligned[position] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def _slice(op: logical.SliceOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    windows = zip(int_values(op.starts), int_values(op.sizes), int_values(op.strides), strict=True)
    return x[tuple(_window(*window) for window in windows)]


def _window(start: int, size: int, stride: int) -> slice:
    return slice(None) if size == WHOLE else slice(start, start + (size - 1) * stride + 1, stride)


def _concat(op: logical.ConcatOp, operands: Sequence[Array]) -> Array:
    return np.concatenate(operands, axis=op.axis.value.data)


def _constant(op: logical.ConstantOp, operands: Sequence[Array]) -> Array:
    return np.broadcast_to(op.array, op.info.shape)


def _unary(function: Callable[[Array], Array]) -> Meaning:
    return lambda op, operands: function(operands[0])


def _binary(function: Callable[[Array, Array], Array]) -> Meaning:
    return lambda op, operands: function(operands[0], operands[1])


SEMANTICS: Mapping[type[Operation], Meaning] = {
    logical.AddOp: _binary(np.add),
    logical.SubOp: _binary(np.subtract),
    logical.MulOp: _binary(np.multiply),
    logical.DivOp: _binary(divide),
    logical.MaxOp: _binary(np.maximum),
    logical.MinOp: _binary(np.minimum),
    logical.NegOp: _unary(np.negative),
    logical.ExpOp: _unary(np.exp),
    logical.LogOp: _unary(np.log),
    logical.SqrtOp: _unary(np.sqrt),
    logical.RsqrtOp: _unary(lambda x: 1 / np.sqrt(x)),
    logical.TanhOp: _unary(np.tanh),
    logical.ErfOp: _unary(erf),
    logical.ReluOp: _unary(lambda x: np.maximum(x, x.dtype.type(0))),
    logical.SigmoidOp: _unary(sigmoid),
    logical.SiluOp: _unary(lambda x: x * sigmoid(x)),
    logical.GeluOp: _gelu,
    logical.CompareOp: _compare,
    logical.SelectOp: lambda op, operands: np.where(operands[0], operands[1], operands[2]),
    logical.CastOp: _cast,
    logical.MatmulOp: _matmul,
    logical.LinearOp: _linear,
    logical.ReduceSumOp: _reduce_sum,
    logical.ReduceMeanOp: _reduce_mean,
    logical.ReduceMaxOp: _reduce_max,
    logical.SoftmaxOp: _softmax,
    logical.LayerNormOp: _layer_norm,
    logical.ReshapeOp: _reshape,
    logical.TransposeOp: _transpose,
    logical.BroadcastOp: _broadcast,
    logical.SliceOp: _slice,
    logical.ConcatOp: _concat,
    logical.ConstantOp: _constant,
}
"""Every value-producing op of the logical dialect and what it computes."""
