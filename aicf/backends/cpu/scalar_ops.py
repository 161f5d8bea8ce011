"""Code for the scalar ops of a generated kernel: one row an op, on vectors of any width.

The same table serves generated kernels and GEMM epilogues. Every op rounds by itself: a multiplication is never
fused with an addition behind the program's back, so the result does not depend on the level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from aicf.backends.cpu.ir_builder import Emitter, Value
from aicf.backends.cpu.philox import separate_words
from aicf.backends.cpu.vector_functions import FUNCTIONS
from aicf.backends.cpu.vector_math import VectorMath
from aicf.dialects.emit_kernels import CastOp, DivIntOp, PhiloxOp, SigmoidOp
from aicf.dialects.types import element_of

FLOATS = ("f32", "f64")


def dtype_of(value: SSAValue | Attribute) -> str:
    """Element type name of a scalar value or type."""
    return element_of(value.type if isinstance(value, SSAValue) else value).name


@dataclass(frozen=True)
class Scalars:
    """Where to emit, and how many lanes a value has."""

    em: Emitter
    lanes: int

    def emit(self, op: Operation, operands: Sequence[Value]) -> Value:
        """The value of `op` for the values of its operands."""
        return EMITTERS[type(op)](self, op, operands)

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
    bits = {"i64": 64, "i32": 32, "i1": 1}[dtype]
    if dtype == "i1":
        return 0 if how == "max" else 1
    return -(1 << (bits - 1)) if how == "max" else (1 << (bits - 1)) - 1


def _maximum(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    return _extremum(s, dtype, ">", x, y)


def _minimum(s: Scalars, dtype: str, x: Value, y: Value) -> Value:
    return _extremum(s, dtype, "<", x, y)


def _extremum(s: Scalars, dtype: str, order: str, x: Value, y: Value) -> Value:
    b = s.em.b
    if dtype == "i1":
        return b.or_(x, y) if order == ">" else b.and_(x, y)
    if dtype not in FLOATS:
        return b.select(b.icmp_signed(order, x, y), x, y)
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
        return FUNCTIONS[name](s.math(dtype_of(op.operands[0])), *operands)

    return emit


def _constant(s: Scalars, op: Operation, _: Sequence[Value]) -> Value:
    assert isinstance(op, arith.ConstantOp)
    attribute = op.value
    assert isinstance(attribute, FloatAttr | IntegerAttr)
    return s.em.const(dtype_of(op.results[0]), s.lanes, attribute.value.data)


_CMPF = (
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
)
_CMPI = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
_LLVM_ORDER = {"eq": "==", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "ne": "!=", "rd": "ord", "no": "uno"}


def _cmpf(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    assert isinstance(op, arith.CmpfOp)
    predicate = _CMPF[op.predicate.value.data]
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
    zero, one, minus = (s.em.const(dtype, s.lanes, value) for value in (0, 1, -1))
    by_zero, by_minus = b.icmp_signed("==", y, zero), b.icmp_signed("==", y, minus)
    quotient = b.sdiv(x, b.select(b.or_(by_zero, by_minus), one, y))
    quotient = b.select(by_minus, b.sub(zero, x), quotient)
    return b.select(by_zero, zero, quotient)


def _cast(s: Scalars, op: Operation, operands: Sequence[Value]) -> Value:
    return convert(s, operands[0], dtype_of(op.operands[0]), dtype_of(op.results[0]))


def convert(s: Scalars, x: Value, source: str, target: str) -> Value:
    """`x` as another element type, as `logical.cast` does it."""
    b = s.em.b
    type_ = s.em.type(target, s.lanes)
    if source == target:
        return x
    if target == "i1":
        zero = s.em.const(source, s.lanes, 0)
        return b.fcmp_unordered("!=", x, zero) if source in FLOATS else b.icmp_signed("!=", x, zero)
    if source in FLOATS and target in FLOATS:
        return b.fpext(x, type_) if target == "f64" else b.fptrunc(x, type_)
    if source in FLOATS:
        return s.em.saturating_int(x, type_)
    if target in FLOATS:
        return b.uitofp(x, type_) if source == "i1" else b.sitofp(x, type_)
    if source == "i1":
        return b.zext(x, type_)
    return b.sext(x, type_) if target == "i64" else b.trunc(x, type_)


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
    math.PowFOp: _function("pow"),
    math.AbsFOp: _function("abs"),
    math.FloorOp: _function("floor"),
    math.CeilOp: _function("ceil"),
    math.RoundEvenOp: _function("round"),
    SigmoidOp: _function("sigmoid"),
    DivIntOp: _divide_ints,
    CastOp: _cast,
    PhiloxOp: _philox,
}
"""Op class -> code."""
