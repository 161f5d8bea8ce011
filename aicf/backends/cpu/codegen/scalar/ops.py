"""Code for the scalar ops of a generated kernel: one row an op, on vectors of any width.

The same table serves generated kernels and GEMM epilogues. Every op rounds by itself: a multiplication is never
silently fused with an addition, so the result does not depend on the level. f16 and bf16 are computed
with in f32, and rounded where the program casts to them or stores them; if the rounding is strict, after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from aicf.backends.cpu.codegen.ir_builder import I64, Emitter, Value
from aicf.backends.cpu.codegen.math.elementary import VectorMath
from aicf.backends.cpu.codegen.math.functions import FUNCTIONS
from aicf.backends.cpu.codegen.nearest import nearest_short
from aicf.backends.cpu.codegen.scalar.narrow_floats import rounded_to_odd
from aicf.backends.cpu.codegen.scalar.philox import separate_words
from aicf.backends.cpu.target import FLOATS, NARROW_FLOATS, REGISTERS, SHORT_INTEGERS
from aicf.dialects.emit_kernels import (
    BitcastOp,
    CastOp,
    DivIntOp,
    PhiloxOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
    StoreOp,
)
from aicf.dialects.types import element_of

_UNSIGNED = ("u8", "i1")
"""Integers without a sign; true is 1."""

_SMALL_INTEGERS = ("i16", "i8", "u8")
"""Integers whose quotients f32 holds exactly enough."""


def dtype_of(value: SSAValue | Attribute) -> str:
    """Element type name of a scalar value or type."""
    return element_of(value.type if isinstance(value, SSAValue) else value).name


@dataclass(frozen=True)
class Scalars:
    """Where to emit, and how many lanes a value has."""

    em: Emitter
    lanes: int
    strict: bool = False
    """Whether f16 and bf16 values are rounded after every op."""

    def emit(self, op: Operation, operands: Sequence[Value]) -> Value:
        """The value of `op` for the values of its operands."""
        value = EMITTERS[type(op)](self, op, operands)
        if self.strict and type(op) not in _EXACT:
            return self.rounded(value, dtype_of(op.results[0]))
        return value

    def of(self, lanes: int) -> Scalars:
        """The same for another number of lanes."""
        return replace(self, lanes=lanes)

    def rounded(self, value: Value, dtype: str) -> Value:
        """A value of f16 or bf16 rounded to its type; any other as it is."""
        return self.em.rounded(value, dtype, self.lanes)

    def settled(self, value: Value, dtype: str) -> Value:
        """What comes of no single op, as the sum of a product or a reduction: rounded if the rounding is strict."""
        return self.rounded(value, dtype) if self.strict else value

    def counted(self, first: Value, step: int, dtype: str) -> Value:
        """The integers `first` (an i64), `first + step` and so on in the lanes."""
        type_ = self.em.type(dtype, 1)
        start = first if first.type == type_ else self.em.b.trunc(first, type_)
        if self.lanes == 1:
            return start
        spread = self.em.splat(start, self.lanes)
        return self.em.b.add(spread, self.em.ramp(dtype, self.lanes, step)) if step else spread

    def combine(self, how: str, dtype: str, x: Value, y: Value) -> Value:
        """One step of a reduction."""
        return _COMBINE[how](self, dtype, x, y)

    def identity(self, how: str, dtype: str) -> Value:
        """What a reduction starts from."""
        return self.em.const(dtype, self.lanes, identity(how, dtype))

    def math(self, dtype: str) -> VectorMath:
        """Functions of floats."""
        return VectorMath(self.em, dtype, self.lanes)


def identity(how: str, dtype: str) -> float | int:
    """The neutral element of a reduction."""
    if how in ("sum", "prod"):
        return int(how == "prod")
    if dtype in FLOATS:
        return float("-inf") if how == "max" else float("inf")
    limits = limits_of(dtype)
    return limits[0] if how == "max" else limits[1]


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the greatest integer of an element type."""
    bits = int(dtype[1:])
    return (0, (1 << bits) - 1) if dtype in _UNSIGNED else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _maximum(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    return _extremum(s, dtype, ">", x, y)


def _minimum(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    return _extremum(s, dtype, "<", x, y)


def _extremum(s: Scalars, dtype: str, order: str, x: Value, y: Value) -> Value:
    b = s.em.b
    if dtype == "i1":
        return b.or_(x, y) if order == ">" else b.and_(x, y)
    if dtype not in FLOATS:
        compare = b.icmp_unsigned if dtype in _UNSIGNED else b.icmp_signed
        return b.select(compare(order, x, y), x, y)
    chosen = b.select(b.fcmp_ordered(order, x, y), x, y)
    # A NaN in y wins already: the comparison is false. A constant x cannot be NaN.
    if s.em.is_constant(x):
        return chosen
    return b.select(b.fcmp_unordered("uno", x, x), x, chosen)


def _sum(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    return s.em.b.fadd(x, y) if dtype in FLOATS else s.em.b.add(x, y)


def _product(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    return s.em.b.fmul(x, y) if dtype in FLOATS else s.em.b.mul(x, y)


_COMBINE: dict[str, Callable[[Scalars, str, Value, Value], Value]] = {
    "sum": _sum,
    "max": _maximum,
    "min": _minimum,
    "prod": _product,
}


def _builder_call(name: str) -> Emit:
    def emit(s: Scalars, _: Operation, operands: Sequence[Value]) -> Value:
        return getattr(s.em.b, name)(*operands)

    return emit


def _extremum_op(maximum: bool) -> Emit:
    def emit(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
        x, y = operands
        # relu compares with a constant: put it first, where no NaN has to be looked for.
        if s.em.is_constant(y):
            x, y = y, x
        return (_maximum if maximum else _minimum)(s, dtype_of(op.operands[0]), x, y)

    return emit


def _unsigned_extremum(maximum: bool) -> Emit:
    def emit(s: Scalars, _: Operation, operands: Sequence[Value]) -> Value:
        x, y = operands
        return s.em.b.select(s.em.b.icmp_unsigned(">" if maximum else "<", x, y), x, y)

    return emit


def _function(name: str) -> Emit:
    def emit(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
        return FUNCTIONS[name](s.math(REGISTERS[dtype_of(op.operands[0])]), *operands)

    return emit


def _constant(s: Scalars, op: Operation, _: Sequence[Value]) -> Value:
    assert isinstance(op, arith.ConstantOp)
    attribute = op.value
    assert isinstance(attribute, FloatAttr | IntegerAttr)
    dtype, value = dtype_of(op.results[0]), attribute.value.data
    if isinstance(value, float) and dtype in FLOATS:
        return s.em.number(dtype, s.lanes, value)
    return s.em.const(dtype, s.lanes, value)


_CMPI = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
_LLVM_ORDER = {"eq": "==", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "ne": "!=", "rd": "ord", "no": "uno"}


def _cmpf(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    assert isinstance(op, arith.CmpfOp)
    predicate = arith.CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]
    if predicate in ("false", "true"):
        return s.em.const("i1", s.lanes, predicate == "true")
    order = _LLVM_ORDER[predicate[1:]]
    compare = s.em.b.fcmp_ordered if predicate[0] == "o" else s.em.b.fcmp_unordered
    return compare(order, *operands)


def _cmpi(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    assert isinstance(op, arith.CmpiOp)
    predicate = op.predicate.value.data
    compare = s.em.b.icmp_unsigned if predicate >= 6 else s.em.b.icmp_signed
    return compare(_CMPI[predicate], *operands)


def _divide_ints(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    """Quotient toward zero; x / 0 is 0, and the one overflow wraps: both divisors are replaced before dividing."""
    b, (x, y) = s.em.b, operands
    dtype = dtype_of(op.operands[0])
    if dtype in _SMALL_INTEGERS:
        return _divide_small_ints(s, dtype, x, y)
    zero, one, minus = (s.em.const(dtype, s.lanes, value) for value in (0, 1, -1))
    by_zero, by_minus = b.icmp_signed("==", y, zero), b.icmp_signed("==", y, minus)
    quotient = b.sdiv(x, b.select(b.or_(by_zero, by_minus), one, y))
    quotient = b.select(by_minus, b.sub(zero, x), quotient)
    return b.select(by_zero, zero, quotient)


def _divide_small_ints(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    """The quotient as f32, cut off: it is never as near to the next integer as f32 rounds. There is no vector division
    of integers."""
    b, type_ = s.em.b, s.em.type("i32", s.lanes)
    quotient = b.fdiv(convert(s, x, dtype, "f32"), convert(s, y, dtype, "f32"))
    # A zero divisor gives infinity or NaN, which become integers that nothing takes.
    whole = convert(s, s.em.saturating_int(quotient, type_), "i32", dtype)
    zero = s.em.const(dtype, s.lanes, 0)
    return b.select(b.icmp_signed("==", y, zero), zero, whole)


def _shift_left(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    """LLVM leaves an amount open that is no number of bits."""
    b, (x, y) = s.em.b, operands
    dtype = dtype_of(op.operands[0])
    zero, inside = s.em.const(dtype, s.lanes, 0), _is_amount(s, dtype, y)
    return b.select(inside, b.shl(x, b.select(inside, y, zero)), zero)


def _shift_right(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    """A number with a sign keeps it; to shift by one bit less than there are leaves nothing else."""
    b, (x, y) = s.em.b, operands
    dtype = dtype_of(op.operands[0])
    inside = _is_amount(s, dtype, y)
    if dtype in _UNSIGNED:
        zero = s.em.const(dtype, s.lanes, 0)
        return b.select(inside, b.lshr(x, b.select(inside, y, zero)), zero)
    return b.ashr(x, b.select(inside, y, s.em.const(dtype, s.lanes, int(dtype[1:]) - 1)))


def _is_amount(s: Scalars, dtype: str, y: Value) -> Value:
    """Whether a number is at least 0 and below the number of bits."""
    return s.em.b.icmp_unsigned("<", y, s.em.const(dtype, s.lanes, int(dtype[1:])))


def _bitcast(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    return s.em.reread(operands[0], dtype_of(op.operands[0]), dtype_of(op.results[0]), s.lanes)


def _cast(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    """Rounds to a narrow float only if the program goes on with the value: a store rounds by itself."""
    source, target = dtype_of(op.operands[0]), dtype_of(op.results[0])
    value = convert(s, operands[0], source, target)
    used = any(not isinstance(use.operation, StoreOp) for use in op.results[0].uses)
    return s.rounded(value, target) if used and source != target else value


def convert(s: Scalars, x: Value, source: str, target: str) -> Value:
    """A register of `source` as one of `target`, as `logical.cast` does it; not rounded to a narrow float yet."""
    b = s.em.b
    type_ = s.em.type(target, s.lanes)
    if REGISTERS[source] == REGISTERS[target]:
        return x
    if target == "i1":
        zero = s.em.const(source, s.lanes, 0)
        return b.fcmp_unordered("!=", x, zero) if source in FLOATS else b.icmp_signed("!=", x, zero)
    if source in FLOATS and target in FLOATS:
        if target == "f64":
            return b.fpext(x, type_)
        return rounded_to_odd(b, x) if target in NARROW_FLOATS else b.fptrunc(x, type_)
    if source in FLOATS:
        found = nearest_short(s.em, x, type_, limits_of(target)) if target in SHORT_INTEGERS else None
        if found is not None:
            return found
        return s.em.saturating_int(x, type_, signed=target not in _UNSIGNED)
    if target in FLOATS:
        return b.uitofp(x, type_) if source in _UNSIGNED else b.sitofp(x, type_)
    return resized(s.em, x, type_, signed=source not in _UNSIGNED)


def extended(em: Emitter, x: Value, dtype: str) -> Value:
    """An integer as i64."""
    return resized(em, x, I64, signed=dtype not in _UNSIGNED)


def resized(em: Emitter, x: Value, type_: Any, signed: bool) -> Value:
    """An integer in another number of bits: extended by its sign or by zeros, or its low bits."""
    before, after = (getattr(t, "element", t).width for t in (x.type, type_))
    if before == after:
        return x
    return em.b.trunc(x, type_) if before > after else em.b.sext(x, type_) if signed else em.b.zext(x, type_)


def _philox(s: Scalars, _: Operation, operands: Sequence[Value]) -> Value:
    return separate_words(s.em, s.lanes, operands)


Emit = Callable[[Scalars, Operation, Sequence[Value]], Value]

EMITTERS: dict[type[Operation], Emit] = {
    arith.AddfOp: _builder_call("fadd"),
    arith.SubfOp: _builder_call("fsub"),
    arith.MulfOp: _builder_call("fmul"),
    arith.DivfOp: _builder_call("fdiv"),
    arith.NegfOp: _builder_call("fneg"),
    arith.MaximumfOp: _extremum_op(True),
    arith.MinimumfOp: _extremum_op(False),
    arith.AddiOp: _builder_call("add"),
    arith.SubiOp: _builder_call("sub"),
    arith.MuliOp: _builder_call("mul"),
    arith.AndIOp: _builder_call("and_"),
    arith.OrIOp: _builder_call("or_"),
    arith.XOrIOp: _builder_call("xor"),
    arith.MaxSIOp: _extremum_op(True),
    arith.MinSIOp: _extremum_op(False),
    arith.MaxUIOp: _unsigned_extremum(True),
    arith.MinUIOp: _unsigned_extremum(False),
    arith.CmpfOp: _cmpf,
    arith.CmpiOp: _cmpi,
    arith.SelectOp: _builder_call("select"),
    arith.ConstantOp: _constant,
    arith.ExtFOp: _cast,
    arith.TruncFOp: _cast,
    arith.SIToFPOp: _cast,
    arith.ExtSIOp: _cast,
    arith.TruncIOp: _cast,
    math.ExpOp: _function("exp"),
    math.LogOp: _function("log"),
    math.SqrtOp: _function("sqrt"),
    math.RsqrtOp: _function("rsqrt"),
    math.TanhOp: _function("tanh"),
    math.ErfOp: _function("erf"),
    math.ExpM1Op: _function("expm1"),
    math.Log1pOp: _function("log1p"),
    math.SinOp: _function("sin"),
    math.CosOp: _function("cos"),
    math.AtanOp: _function("atan"),
    math.PowFOp: _function("pow"),
    math.AbsFOp: _function("abs"),
    math.FloorOp: _function("floor"),
    math.CeilOp: _function("ceil"),
    math.RoundEvenOp: _function("round"),
    SigmoidOp: _function("sigmoid"),
    DivIntOp: _divide_ints,
    ShiftLeftOp: _shift_left,
    ShiftRightOp: _shift_right,
    BitcastOp: _bitcast,
    CastOp: _cast,
    PhiloxOp: _philox,
}
"""Op class -> code."""

_EXACT = (
    arith.ConstantOp,
    arith.SelectOp,
    arith.NegfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    math.AbsFOp,
    math.FloorOp,
    math.CeilOp,
    math.RoundEvenOp,
    BitcastOp,
)
"""Ops whose narrow result needs no rounding if their operands are rounded."""
