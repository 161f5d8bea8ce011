"""The scalar form of elementwise logical ops: one row an op.

Element types decide between the float and the integer op; what neither arith nor math define for every input
(integer division by zero, saturating casts) has its own op in the emit dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    AnyFloat,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.hints import isa

from aicf.dialects import logical
from aicf.dialects.emit_kernels import (
    BitcastOp,
    CastOp,
    DivIntOp,
    PhiloxOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
)

Make = Callable[[SSAValue, SSAValue], Operation]
Scalars = Sequence[SSAValue]

_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED_PREDICATES = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED_PREDICATES = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}

_FLOAT_BINARY: dict[type[Operation], Make] = {
    logical.AddOp: arith.AddfOp,
    logical.SubOp: arith.SubfOp,
    logical.MulOp: arith.MulfOp,
    logical.DivOp: arith.DivfOp,
    logical.MaxOp: arith.MaximumfOp,
    logical.MinOp: arith.MinimumfOp,
    logical.PowOp: math.PowFOp,
}
_INT_BINARY: dict[type[Operation], Make] = {
    logical.AddOp: arith.AddiOp,
    logical.SubOp: arith.SubiOp,
    logical.MulOp: arith.MuliOp,
    logical.DivOp: DivIntOp,
    logical.MaxOp: arith.MaxSIOp,
    logical.MinOp: arith.MinSIOp,
    logical.AndOp: arith.AndIOp,
    logical.OrOp: arith.OrIOp,
    logical.XorOp: arith.XOrIOp,
    logical.ShiftLeftOp: ShiftLeftOp,
    logical.ShiftRightOp: ShiftRightOp,
}
_UNSIGNED_BINARY: dict[type[Operation], Make] = {
    **_INT_BINARY,
    logical.MaxOp: arith.MaxUIOp,
    logical.MinOp: arith.MinUIOp,
}
_UNARY: dict[type[Operation], Callable[[SSAValue], Operation]] = {
    logical.ExpOp: math.ExpOp,
    logical.LogOp: math.LogOp,
    logical.SqrtOp: math.SqrtOp,
    logical.RsqrtOp: math.RsqrtOp,
    logical.TanhOp: math.TanhOp,
    logical.ErfOp: math.ErfOp,
    logical.SigmoidOp: SigmoidOp,
    logical.Expm1Op: math.ExpM1Op,
    logical.Log1pOp: math.Log1pOp,
    logical.SinOp: math.SinOp,
    logical.CosOp: math.CosOp,
    logical.AtanOp: math.AtanOp,
    logical.FloorOp: math.FloorOp,
    logical.CeilOp: math.CeilOp,
    logical.RoundOp: math.RoundEvenOp,
}


def _is_float(type_: Attribute) -> bool:
    return isinstance(type_, AnyFloat)


def _is_unsigned(type_: Attribute) -> bool:
    """Unsigned integers, and i1, whose true is 1 and not -1."""
    return type_ == i1 or (isa(type_, IntegerType) and type_.signedness.data is Signedness.UNSIGNED)


def scalar_constant(value: float | int, type_: Attribute) -> list[Operation]:
    """A constant of a scalar type, the last op giving it; arith has none of unsigned types, so such bits are cast."""
    if isinstance(type_, AnyFloat):
        return [arith.ConstantOp(FloatAttr(float(value), type_))]
    assert isa(type_, IntegerType)
    if type_.signedness.data is not Signedness.UNSIGNED:
        return [arith.ConstantOp(IntegerAttr(int(value), type_))]
    width = type_.width.data
    bits = int(value) % (1 << width)
    signed = bits - (1 << width) if bits >> (width - 1) else bits
    constant = arith.ConstantOp(IntegerAttr(signed, IntegerType(width)))
    return [constant, CastOp(constant.result, type_)]


def splat_value(op: logical.ConstantOp) -> float | int | None:
    """The value of a constant whose elements are all equal, else None."""
    return op.array.item() if op.is_splat else None


def scalar_ops(op: Operation, operands: Scalars, result_type: Attribute) -> list[Operation] | None:
    """The scalar ops that compute one element of elementwise `op`, the last one giving it; None for other ops.

    Args:
        operands: One element of each operand.
        result_type: Element type of the result.
    """
    if (unary := _UNARY.get(type(op))) is not None:
        return [unary(operands[0])]
    match op:
        case logical.NegOp():
            return _negate(operands[0])
        case logical.AbsOp():
            return _magnitude(operands[0])
        case logical.NotOp():
            return _invert(operands[0])
        case logical.ReluOp():
            zero = scalar_constant(0, operands[0].type)
            larger = _table(operands[0].type)[logical.MaxOp]
            return [*zero, larger(operands[0], zero[-1].results[0])]
        case logical.CompareOp():
            return [_compare(op.predicate.data, operands)]
        case logical.SelectOp():
            return [arith.SelectOp(*operands)]
        case logical.CastOp():
            return [CastOp(operands[0], result_type)]
        case logical.BitcastOp():
            return [BitcastOp(operands[0], result_type)]
        case logical.PhiloxWordOp():
            return [PhiloxOp(*operands)]
        case _:
            return _binary(op, operands)


def _binary(op: Operation, operands: Scalars) -> list[Operation] | None:
    if len(operands) != 2:
        return None
    make = _table(operands[0].type).get(type(op))
    return None if make is None else [make(operands[0], operands[1])]


def _table(type_: Attribute) -> Mapping[type[Operation], Make]:
    """The ops of two operands of a type."""
    return _FLOAT_BINARY if _is_float(type_) else _UNSIGNED_BINARY if _is_unsigned(type_) else _INT_BINARY


def _negate(value: SSAValue) -> list[Operation]:
    if _is_float(value.type):
        return [arith.NegfOp(value)]
    zero = scalar_constant(0, value.type)
    return [*zero, arith.SubiOp(zero[-1].results[0], value)]


def _magnitude(value: SSAValue) -> list[Operation]:
    if _is_float(value.type):
        return [math.AbsFOp(value)]
    *negation, last = _negate(value)
    larger = (
        arith.MaxUIOp(value, value) if _is_unsigned(value.type) else arith.MaxSIOp(value, last.results[0])
    )
    return [*negation, last, larger]


def _invert(value: SSAValue) -> list[Operation]:
    assert isa(value.type, IntegerType)
    ones = scalar_constant(1 if value.type == i1 else -1, value.type)
    return [*ones, arith.XOrIOp(value, ones[-1].results[0])]


def _compare(predicate: str, operands: Scalars) -> Operation:
    type_ = operands[0].type
    if _is_float(type_):
        return arith.CmpfOp(operands[0], operands[1], _FLOAT_PREDICATES[predicate])
    table = _UNSIGNED_PREDICATES if _is_unsigned(type_) else _SIGNED_PREDICATES
    return arith.CmpiOp(operands[0], operands[1], table[predicate])
