"""The scalar ops of generated kernels on NumPy arrays: floats in float64 whatever their type, integers as typed.

Written from the ops' own definitions, apart from the table that passes make them by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.dialects import math as scalar_math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation

from aicf.dialects.emit_scalar_ops import (
    BitcastOp,
    CastOp,
    DivIntOp,
    PhiloxOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
)
from aicf.dialects.types import element_of
from aicf.semantics import value_dtype
from aicf.semantics.random import philox_word

Array = NDArray[Any]


def scalar_value(op: Operation, operands: list[Array]) -> Array:
    """The result of an op for arrays of its operands. Raises KeyError for an op without a meaning here."""
    dtype = value_dtype(element_of(op.results[0].type), "exact")
    match op:
        case arith.ConstantOp():
            assert isinstance(op.value, FloatAttr | IntegerAttr)
            return np.asarray(op.value.value.data).astype(dtype)
        case arith.CmpiOp() | arith.CmpfOp():
            return _PREDICATES[type(op)][op.predicate.value.data](*operands)
        case BitcastOp():
            return _same_bits(operands[0], *(element_of(v.type).dtype for v in (*op.operands, *op.results)))
        case CastOp() | arith.TruncIOp() | arith.ExtSIOp() | arith.SIToFPOp():
            return _cast(operands[0], dtype)
        case _:
            return np.asarray(_MEANINGS[type(op)](*operands)).astype(dtype, copy=False)


def _cast(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind not in "iu" or x.dtype.kind != "f":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    whole = np.trunc(np.where(np.isnan(x), 0.0, x))
    above, below = whole >= 2.0 ** (limits.bits - (dtype.kind == "i")), whole < float(limits.min)
    inside = np.where(above | below, 0.0, whole).astype(dtype)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(dtype)


def _same_bits(x: Array, source: np.dtype[Any], target: np.dtype[Any]) -> Array:
    raw = np.frombuffer(
        np.ascontiguousarray(x.astype(source)).tobytes(), np.uint8 if target == "?" else target
    )
    found = (raw != 0 if target == "?" else raw).reshape(x.shape)
    return found.astype(np.float64) if found.dtype.kind in "fV" else found


def _shifted(x: Array, amount: Array, left: bool) -> Array:
    """In Python's integers, which have as many bits as they need."""
    bits, unsigned = 8 * x.dtype.itemsize, x.dtype.kind == "u"

    def one(number: int, by: int) -> int:
        if not 0 <= by < bits:
            return -1 if number < 0 and not left else 0
        whole = (number << by if left else number >> by) % (1 << bits)
        return whole if unsigned or whole < 1 << (bits - 1) else whole - (1 << bits)

    pairs = np.broadcast(x, amount)
    return np.array([one(int(a), int(b)) for a, b in pairs], x.dtype).reshape(pairs.shape)


def _quotient(x: Array, y: Array) -> Array:
    """Truncated toward zero; 0 where the divisor is."""
    safe = np.where(y == 0, np.ones_like(y), y)
    down = x // safe
    inexact = (down * safe != x) & ((x < 0) != (safe < 0))
    return np.where(y == 0, np.zeros_like(x), down + inexact.astype(x.dtype))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _bits(x: Array) -> Array:
    """As an unsigned number."""
    return x if x.dtype.kind in "bu" else x.view(np.dtype(f"u{x.itemsize}"))


def _of_bits(wrap: Callable[..., Array], flip: Callable[..., Array]) -> Callable[..., Array]:
    """Integer arithmetic mod 2^n, which NumPy does not do with one bit."""
    return lambda x, y: flip(x, y) if x.dtype == np.bool_ else wrap(x, y)


def _unsigned(compare: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: compare(_bits(np.asarray(x)), _bits(np.asarray(y)))


_ORDERS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)

_PREDICATES: Mapping[type[Operation], Mapping[int, Callable[..., Array]]] = {
    arith.CmpiOp: dict(enumerate((*_ORDERS, *map(_unsigned, _ORDERS[2:])))),
    # oeq, ogt, oge, olt, ole, une: what compares as NumPy does, false beside NaN but for the last.
    arith.CmpfOp: {
        1: np.equal,
        2: np.greater,
        3: np.greater_equal,
        4: np.less,
        5: np.less_equal,
        13: np.not_equal,
    },
}
"""By the numbers of predicates in MLIR."""

_MEANINGS: Mapping[type[Operation], Callable[..., Any]] = {
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    arith.NegfOp: np.negative,
    arith.MaximumfOp: np.maximum,
    arith.MinimumfOp: np.minimum,
    arith.AddiOp: _of_bits(np.add, np.logical_xor),
    arith.SubiOp: _of_bits(np.subtract, np.logical_xor),
    arith.MuliOp: _of_bits(np.multiply, np.logical_and),
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
    arith.MaxSIOp: np.maximum,
    arith.MinSIOp: np.minimum,
    arith.MaxUIOp: _unsigned(np.maximum),
    arith.MinUIOp: _unsigned(np.minimum),
    arith.SelectOp: np.where,
    arith.ExtFOp: np.positive,
    arith.TruncFOp: np.positive,
    scalar_math.ExpOp: np.exp,
    scalar_math.LogOp: np.log,
    scalar_math.SqrtOp: np.sqrt,
    scalar_math.RsqrtOp: lambda x: 1.0 / np.sqrt(x),
    scalar_math.TanhOp: np.tanh,
    scalar_math.ErfOp: np.vectorize(math.erf, otypes=[np.float64]),
    scalar_math.ExpM1Op: np.expm1,
    scalar_math.Log1pOp: np.log1p,
    scalar_math.SinOp: np.sin,
    scalar_math.CosOp: np.cos,
    scalar_math.AtanOp: np.arctan,
    scalar_math.PowFOp: np.power,
    scalar_math.AbsFOp: np.abs,
    scalar_math.FloorOp: np.floor,
    scalar_math.CeilOp: np.ceil,
    scalar_math.RoundEvenOp: np.rint,
    SigmoidOp: _sigmoid,
    DivIntOp: _quotient,
    ShiftLeftOp: lambda x, y: _shifted(x, y, True),
    ShiftRightOp: lambda x, y: _shifted(x, y, False),
    PhiloxOp: philox_word,
}

WITH_MEANING = frozenset(
    {
        *_MEANINGS,
        *_PREDICATES,
        arith.ConstantOp,
        BitcastOp,
        CastOp,
        arith.TruncIOp,
        arith.ExtSIOp,
        arith.SIToFPOp,
    }
)
"""The ops that `scalar_value` knows."""
