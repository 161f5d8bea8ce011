"""Scalar programs as Python text for Numba: the ops of `emit.kernel` phases, loads and stores of one or more elements.

What generated kernels and the epilogues of matrix products share. A value lives in a register of the type that
`REGISTERS` names. Narrow floats are in f32: with rounding `fused` such a value is rounded where it is stored and
where the program casts to it; with `strict` after every op. Short integers are in i32, which always holds a number of
their range. Nothing here is approximate: f32 division and square root are IEEE, functions are within 4 ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import Access, access_of
from aicf.backends.cuda.codegen.philox import word_text
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.records import Rounding
from aicf.backends.cuda.target import ELEMENT_BYTES, FLOAT8, FLOATS, NARROW_FLOATS, SHORT_INTEGERS
from aicf.dialects.emit_kernels import (
    BitcastOp,
    CastOp,
    DivIntOp,
    KernelOp,
    PhiloxOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.types import element_of

REGISTERS = {
    "f64": "f64",
    "f32": "f32",
    "f16": "f32",
    "bf16": "f32",
    "f8E4M3FN": "f32",
    "f8E5M2": "f32",
    "i64": "i64",
    "i32": "i32",
    "i16": "i32",
    "i8": "i32",
    "u8": "i32",
    "i1": "bool",
}
"""Element type in memory to the type of its register."""


def dtype_of(value: SSAValue | Attribute) -> str:
    """Element type name of a scalar value or type."""
    return element_of(value.type if isinstance(value, SSAValue) else value).name


# Constants and combinations


def constant_text(value: float | int, dtype: str) -> str:
    """An expression for a constant of element type `dtype`."""
    if dtype == "i1":
        return str(bool(value))
    if dtype not in FLOATS:
        return f"{REGISTERS[dtype]}({int(value)})"
    register = REGISTERS[dtype]
    if value != value or value in (float("inf"), float("-inf")):
        return _special(value, register)
    return f"{register}({float(value)!r})"


def _special(value: float, register: str) -> str:
    """Infinities and NaN have no literal in Python."""
    if register == "f32":
        bits = 0x7FC00000 if value != value else 0x7F800000 if value > 0 else 0xFF800000 - (1 << 32)
        return f"cuda.libdevice.int_as_float({bits})"
    bits = 0x7FF8 << 48 if value != value else 0x7FF << 52 if value > 0 else (0xFFF << 52) - (1 << 64)
    return f"cuda.libdevice.longlong_as_double({bits})"


def identity_text(combine: str, dtype: str) -> str:
    """What a reduction starts from: 0, 1, or the value that every other one replaces."""
    if combine in ("sum", "prod"):
        return constant_text(int(combine == "prod"), dtype)
    if dtype in FLOATS:
        return constant_text(float("-inf") if combine == "max" else float("inf"), dtype)
    if dtype == "i1":
        return constant_text(combine == "min", dtype)
    lowest, highest = integer_range(dtype)
    if combine == "min":
        return constant_text(highest, dtype)
    if dtype in SHORT_INTEGERS:
        return constant_text(lowest, dtype)
    # The lowest integer has no literal of its own type: its negation is out of range.
    return f"{dtype}({constant_text(lowest + 1, dtype)} - {constant_text(1, dtype)})"


def integer_range(dtype: str) -> tuple[int, int]:
    """The lowest and the highest number of an integer type."""
    bits = 8 * ELEMENT_BYTES[dtype]
    return (0, (1 << bits) - 1) if dtype[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def wrapped_text(text: str, dtype: str) -> str:
    """The low bits of an integer expression, as a register of `dtype`."""
    return f"i32({dtype}({text}))" if dtype in SHORT_INTEGERS else f"{dtype}({text})"


def combine_text(combine: str, dtype: str, a: str, b: str) -> str:
    """One step of a reduction; `max` and `min` propagate NaN."""
    match combine:
        case "max":
            return _maximum(dtype, a, b)
        case "min":
            return _minimum(dtype, a, b)
        case "prod" | "mul":
            return _multiply(dtype, a, b)
        case _:
            return _add(dtype, a, b)


def _add(dtype: str, a: str, b: str) -> str:
    if dtype in FLOATS:
        return f"({a} + {b})"
    return f"({a} ^ {b})" if dtype == "i1" else wrapped_text(f"{a} + {b}", dtype)


def _multiply(dtype: str, a: str, b: str) -> str:
    if dtype in FLOATS:
        return f"({a} * {b})"
    return f"({a} & {b})" if dtype == "i1" else wrapped_text(f"{a} * {b}", dtype)


def _maximum(dtype: str, a: str, b: str) -> str:
    match REGISTERS[dtype]:
        case "f32":
            return f"max_nan({a}, {b})"
        case "f64":
            return f"cuda.selp(({a} > {b}) | ({a} != {a}), {a}, {b})"
        case "bool":
            return f"({a} | {b})"
        case _:
            return f"cuda.selp({a} > {b}, {a}, {b})"


def _minimum(dtype: str, a: str, b: str) -> str:
    match REGISTERS[dtype]:
        case "f32":
            return f"min_nan({a}, {b})"
        case "f64":
            return f"cuda.selp(({a} < {b}) | ({a} != {a}), {a}, {b})"
        case "bool":
            return f"({a} & {b})"
        case _:
            return f"cuda.selp({a} < {b}, {a}, {b})"


def select_text(condition: str, dtype: str, a: str, b: str) -> str:
    """`a` where the condition holds, else `b`, without a branch."""
    if dtype == "i1":
        return f"(({condition} & {a}) | ((not {condition}) & {b}))"
    return f"cuda.selp({condition}, {a}, {b})"


# Rounding and casts


def rounded_text(text: str, dtype: str) -> str:
    """The f32 value rounded to a narrow float; any other as it is."""
    return f"{dtype}_to_f32(f32_to_{dtype}({text}))" if dtype in NARROW_FLOATS else text


def cast_text(text: str, source: str, target: str) -> str:
    """A register of element type `source` as one of `target`, not rounded to a narrow float yet.

    Floats to integers truncate and saturate, NaN gives 0; integers keep their low bits; to i1 is `x != 0`. `text` is
    a name.
    """
    kind, wanted = REGISTERS[source], REGISTERS[target]
    if target in SHORT_INTEGERS and source != "i1":
        if source not in FLOATS:
            return text if source == target else wrapped_text(text, target)
        lowest, highest = integer_range(target)
        return f"min(max({_float_to_int(text, kind, wanted)}, i32({lowest})), i32({highest}))"
    if kind == wanted:
        return text
    if wanted == "bool":
        return f"({text} != {constant_text(0, source)})"
    if kind == "bool":
        return f"cuda.selp({text}, {constant_text(1, target)}, {constant_text(0, target)})"
    if source in FLOATS and target not in FLOATS:
        return _float_to_int(text, kind, wanted)
    if source == "f64" and target in NARROW_FLOATS:
        return _odd(text)
    return f"{wanted}({text})"


def _float_to_int(text: str, kind: str, wanted: str) -> str:
    """The conversions of the hardware saturate; only those to i64 do not turn NaN into 0."""
    name = {"f32": "float", "f64": "double"}[kind] + {"i32": "2int_rz", "i64": "2ll_rz"}[wanted]
    made = f"cuda.libdevice.{name}({text})"
    if wanted == "i32" and kind == "f32":
        return made
    return f"cuda.selp({text} == {text}, {wanted}({made}), {wanted}(0))"


def _odd(text: str) -> str:
    """f64 to f32 rounded to odd, so that rounding once more to a narrow float is as if there had been one rounding."""
    cut = f"cuda.libdevice.double2float_rz({text})"
    sticky = f"cuda.selp(({text} != f64({cut})) & ({text} == {text}), i32(1), i32(0))"
    return f"cuda.libdevice.int_as_float(i32(cuda.libdevice.float_as_int({cut}) | {sticky}))"


# Ops

Text = Callable[[Operation, Sequence[str]], str]
"""From an op and the names of its operands to an expression."""


def _infix(symbol: str) -> Text:
    return lambda op, args: f"({args[0]} {symbol} {args[1]})"


def _integer(symbol: str, on_bools: str) -> Text:
    """Wraps around: Numba would compute in 64 bits."""

    def text(op: Operation, args: Sequence[str]) -> str:
        dtype = dtype_of(op.results[0])
        if dtype == "i1":
            return f"({args[0]} {on_bools} {args[1]})"
        return wrapped_text(f"{args[0]} {symbol} {args[1]}", dtype)

    return text


def _of_dtype(make: Callable[[str, str, str], str]) -> Text:
    return lambda op, args: make(dtype_of(op.results[0]), args[0], args[1])


def _unsigned(symbol: str, on_bools: str) -> Text:
    def text(op: Operation, args: Sequence[str]) -> str:
        if (dtype := dtype_of(op.results[0])) == "i1":
            return f"({args[0]} {on_bools} {args[1]})"
        a, b = (_as_unsigned(name, dtype) for name in args)
        return f"cuda.selp({a} {symbol} {b}, {args[0]}, {args[1]})"

    return text


def _as_unsigned(name: str, dtype: str) -> str:
    """The bits of an integer read as a number without a sign."""
    return name if dtype[0] == "u" else f"u{dtype[1:]}({name})"


def _function(single: str, double: str) -> Text:
    """A function of libdevice by its f32 and f64 names."""

    def text(op: Operation, args: Sequence[str]) -> str:
        name = double if dtype_of(op.results[0]) == "f64" else single
        return f"cuda.libdevice.{name}({', '.join(args)})"

    return text


_libdevice_erf = _function("erff", "erf")


def _erf(op: Operation, args: Sequence[str]) -> str:
    """That of libdevice is exact where it is small, at twice the time. Where 1 is added and all results are halves, an
    absolute error is enough, which is far below their rounding."""
    if dtype_of(op.results[0]) == "f32" and _has_one_added(op.results[0]) and _gives_halves(op):
        return f"erf_absolute({args[0]})"
    return _libdevice_erf(op, args)


def _has_one_added(value: SSAValue) -> bool:
    """Whether all that is done with a value is to add 1."""
    users = [use.operation for use in value.uses]
    return all(isinstance(user, arith.AddfOp) and any(map(_is_one, user.operands)) for user in users)


def _is_one(value: SSAValue) -> bool:
    constant = value.owner
    return (
        isinstance(constant, arith.ConstantOp)
        and isinstance(constant.value, FloatAttr)
        and constant.value.value.data == 1.0
    )


def _gives_halves(op: Operation) -> bool:
    """Whether all results of the scalar program of an op are narrow floats."""
    program: Operation | None = op
    while program is not None and not isinstance(program, KernelOp):
        program = program.parent_op()
    if program is None:
        return False
    stores = [each for phase in program.phases for each in phase.body.block.ops if isinstance(each, StoreOp)]
    return bool(stores) and all(dtype_of(store.value) in NARROW_FLOATS for store in stores)


def _sigmoid(op: Operation, args: Sequence[str]) -> str:
    """e^min(x, 0) / (1 + e^-|x|): no overflow on either side, and one exponential."""
    x, dtype = args[0], dtype_of(op.results[0])
    exp, fabs, div = ("exp", "fabs", "ddiv_rn") if dtype == "f64" else ("expf", "fabsf", "fdiv_rn")
    one = constant_text(1, dtype)
    small = f"cuda.libdevice.{exp}(-cuda.libdevice.{fabs}({x}))"
    above = f"cuda.selp({x} >= {constant_text(0, dtype)}, {one}, {small})"
    return f"cuda.libdevice.{div}({above}, {one} + {small})"


def _constant(op: Operation, args: Sequence[str]) -> str:
    assert isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr | IntegerAttr)
    return constant_text(op.value.value.data, dtype_of(op.result))


_ORDERED = {"eq": "==", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_CMPI = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")


def _compare_floats(op: Operation, args: Sequence[str]) -> str:
    assert isinstance(op, arith.CmpfOp)
    a, b = args
    ordered, unordered = f"(({a} == {a}) & ({b} == {b}))", f"(({a} != {a}) | ({b} != {b}))"
    match arith.CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]:
        case "false" | "true" as constant:
            return constant.title()
        case "ord":
            return ordered
        case "uno":
            return unordered
        case "one":
            return f"(({a} < {b}) | ({a} > {b}))"
        case "une":
            return f"({a} != {b})"
        case predicate if predicate[0] == "o":
            return f"({a} {_ORDERED[predicate[1:]]} {b})"
        case predicate:
            return f"({unordered} | ({a} {_ORDERED[predicate[1:]]} {b}))"


def _compare_integers(op: Operation, args: Sequence[str]) -> str:
    assert isinstance(op, arith.CmpiOp)
    predicate, dtype = op.predicate.value.data, dtype_of(op.operands[0])
    a, b = args
    if dtype == "i1":
        # As signed numbers true is -1, as unsigned ones 1.
        a, b = (cast_text(name, "i1", "i32") for name in args)
        a, b = (b, a) if 2 <= predicate < 6 else (a, b)
    elif predicate >= 6:
        a, b = (_as_unsigned(name, dtype) for name in args)
    return f"({a} {_CMPI[predicate]} {b})"


def _divide_integers(op: Operation, args: Sequence[str]) -> str:
    """Quotient of the magnitudes with its sign, 0 for a zero divisor; overflow wraps in the conversion back."""
    dtype = dtype_of(op.results[0])
    x, y = args
    if dtype == "i1":
        return f"({x} & {y})"
    register = REGISTERS[dtype]
    unsigned, zero, one = f"u{register[1:]}", f"{register}(0)", f"{register}(1)"
    above = f"{unsigned}(cuda.selp({x} < {zero}, {register}(-{x}), {x}))"
    below = f"{unsigned}(cuda.selp({y} < {zero}, {register}(-{y}), cuda.selp({y} == {zero}, {one}, {y})))"
    quotient = f"{register}({above} // {below})"
    signed = f"cuda.selp(({x} < {zero}) != ({y} < {zero}), {register}(-{quotient}), {quotient})"
    result = f"cuda.selp({y} == {zero}, {zero}, {signed})"
    return wrapped_text(result, dtype) if dtype in SHORT_INTEGERS else result


def _shift_left(op: Operation, args: Sequence[str]) -> str:
    """The hardware shifts by no more than its registers have bits; 0 where the amount is no number of bits."""
    dtype = dtype_of(op.results[0])
    inside, zero = _is_amount(args[1], dtype), constant_text(0, dtype)
    shifted = wrapped_text(f"{args[0]} << cuda.selp({inside}, {args[1]}, {zero})", dtype)
    return f"cuda.selp({inside}, {shifted}, {zero})"


def _shift_right(op: Operation, args: Sequence[str]) -> str:
    """A register holds its number with its sign, so what an amount that is no number of bits leaves is the sign."""
    dtype = dtype_of(op.results[0])
    highest = constant_text(8 * ELEMENT_BYTES[dtype] - 1, dtype)
    amount = f"cuda.selp({_is_amount(args[1], dtype)}, {args[1]}, {highest})"
    if dtype[0] != "u":
        return f"{REGISTERS[dtype]}({args[0]} >> {amount})"
    zero = constant_text(0, dtype)
    return f"cuda.selp({_is_amount(args[1], dtype)}, {REGISTERS[dtype]}({args[0]} >> {amount}), {zero})"


def _is_amount(name: str, dtype: str) -> str:
    low, high = constant_text(0, dtype), constant_text(8 * ELEMENT_BYTES[dtype], dtype)
    return f"(({name} >= {low}) & ({name} < {high}))"


_BITS_OF = {
    "f64": "cuda.libdevice.double_as_longlong({})",
    "f32": "cuda.libdevice.float_as_int({})",
    "f16": "i32(f32_to_f16({}))",
    "bf16": "i32(f32_to_bf16({}))",
    **{name: f"i32(f32_to_{name}({{}}))" for name in FLOAT8},
}
"""The bits of a float as an integer register, the high half of which does not count for a short float."""
_FLOAT_OF = {
    "f64": "cuda.libdevice.longlong_as_double({})",
    "f32": "cuda.libdevice.int_as_float({})",
    "f16": "f16_to_f32(u16({}))",
    "bf16": "bf16_to_f32(u16({}))",
    **{name: f"{name}_to_f32(u16({{}}))" for name in FLOAT8},
}


def _bitcast(op: Operation, args: Sequence[str]) -> str:
    source, target = dtype_of(op.operands[0]), dtype_of(op.results[0])
    if source == target:
        return args[0]
    if source == "i1":
        return cast_text(args[0], source, target)
    bits = _BITS_OF[source].format(args[0]) if source in FLOATS else args[0]
    if target == "i1":
        return f"({bits} != i32(0))"
    return _FLOAT_OF[target].format(bits) if target in FLOATS else wrapped_text(bits, target)


def _select(op: Operation, args: Sequence[str]) -> str:
    return select_text(args[0], dtype_of(op.results[0]), args[1], args[2])


def _cast(op: Operation, args: Sequence[str]) -> str:
    """Rounds to a narrow float only if the program goes on with the value: a store rounds by itself."""
    source, target = dtype_of(op.operands[0]), dtype_of(op.results[0])
    text = cast_text(args[0], source, target)
    used = any(not isinstance(use.operation, StoreOp) for use in op.results[0].uses)
    return rounded_text(text, target) if used and source != target else text


def _narrowed(op: Operation, args: Sequence[str]) -> str:
    """The low bits."""
    source, target = dtype_of(op.operands[0]), dtype_of(op.results[0])
    if target != "i1":
        return wrapped_text(args[0], target)
    return f"(({args[0]} & {constant_text(1, source)}) != {constant_text(0, source)})"


TEXTS: Mapping[type[Operation], Text] = {
    arith.ConstantOp: _constant,
    arith.AddfOp: _infix("+"),
    arith.SubfOp: _infix("-"),
    arith.MulfOp: _infix("*"),
    arith.DivfOp: _function("fdiv_rn", "ddiv_rn"),
    arith.NegfOp: lambda op, args: f"(-{args[0]})",
    arith.MaximumfOp: _of_dtype(_maximum),
    arith.MinimumfOp: _of_dtype(_minimum),
    arith.AddiOp: _integer("+", "^"),
    arith.SubiOp: _integer("-", "^"),
    arith.MuliOp: _integer("*", "&"),
    arith.AndIOp: _integer("&", "&"),
    arith.OrIOp: _integer("|", "|"),
    arith.XOrIOp: _integer("^", "^"),
    arith.MaxSIOp: _of_dtype(_maximum),
    arith.MinSIOp: _of_dtype(_minimum),
    arith.MaxUIOp: _unsigned(">", "|"),
    arith.MinUIOp: _unsigned("<", "&"),
    arith.CmpfOp: _compare_floats,
    arith.CmpiOp: _compare_integers,
    arith.SelectOp: _select,
    arith.ExtFOp: _cast,
    arith.TruncFOp: _cast,
    arith.ExtSIOp: _cast,
    arith.TruncIOp: _narrowed,
    arith.SIToFPOp: _cast,
    math.ExpOp: _function("expf", "exp"),
    math.LogOp: _function("logf", "log"),
    math.SqrtOp: _function("fsqrt_rn", "dsqrt_rn"),
    math.RsqrtOp: _function("rsqrtf", "rsqrt"),
    math.TanhOp: _function("tanhf", "tanh"),
    math.ErfOp: _erf,
    math.ExpM1Op: _function("expm1f", "expm1"),
    math.Log1pOp: _function("log1pf", "log1p"),
    math.SinOp: _function("sinf", "sin"),
    math.CosOp: _function("cosf", "cos"),
    math.AtanOp: _function("atanf", "atan"),
    math.PowFOp: _function("powf", "pow"),
    math.AbsFOp: _function("fabsf", "fabs"),
    math.FloorOp: _function("floorf", "floor"),
    math.CeilOp: _function("ceilf", "ceil"),
    math.RoundEvenOp: _function("rintf", "rint"),
    SigmoidOp: _sigmoid,
    DivIntOp: _divide_integers,
    ShiftLeftOp: _shift_left,
    ShiftRightOp: _shift_right,
    BitcastOp: _bitcast,
    CastOp: _cast,
    PhiloxOp: word_text,
}
"""Op class -> expression. Adding a scalar op is adding its row."""

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


class ScalarText:
    """Statements that compute scalar ops, each value in a local of its own.

    Args:
        rounding: Where values of narrow floats are rounded.
        prefix: Start of the locals' names.
        lines: Where the statements go; a new list if None.
    """

    def __init__(self, rounding: Rounding = "fused", prefix: str = "v", lines: list[str] | None = None):
        self.rounding: Rounding = rounding
        self.prefix = prefix
        self.lines: list[str] = [] if lines is None else lines
        self.names: dict[SSAValue, str] = {}
        self._made = 0

    def fresh(self, text: str) -> str:
        """A new local that holds the expression `text`."""
        self._made += 1
        name = f"{self.prefix}{self._made}"
        self.lines.append(f"{name} = {text}")
        return name

    def emit(self, op: Operation) -> None:
        """Computes `op`, whose operands have names."""
        write = (
            _libdevice_erf if isinstance(op, math.ErfOp) and self.rounding == "strict" else TEXTS[type(op)]
        )
        text = write(op, [self.names[operand] for operand in op.operands])
        result = op.results[0]
        if self.rounding == "strict" and type(op) not in _EXACT:
            text = rounded_text(text, dtype_of(result))
        self.names[result] = self.fresh(text)

    def value(self, value: SSAValue) -> str:
        """The name of a computed value."""
        return self.names[value]


# Memory

_SCALAR_LOADS = {
    "f64": "load_f64({})",
    "f32": "load_f32({})",
    "f16": "f16_to_f32(load_u16({}))",
    "bf16": "bf16_to_f32(load_u16({}))",
    **{name: f"{name}_to_f32(u16(load_u8({{}})))" for name in FLOAT8},
    "i64": "load_i64({})",
    "i32": "load_i32({})",
    "i16": "load_i16({})",
    "i8": "load_i8({})",
    "u8": "i32(load_u8({}))",
    "i1": "(load_u8({}) != u32(0))",
}
_SCALAR_STORES = {
    "f64": "store_f64({}, {})",
    "f32": "store_f32({}, {})",
    "f16": "store_u16({}, f32_to_f16({}))",
    "bf16": "store_u16({}, f32_to_bf16({}))",
    **{name: f"store_u8({{}}, u32(f32_to_{name}({{}})))" for name in FLOAT8},
    "i64": "store_i64({}, {})",
    "i32": "store_i32({}, {})",
    "i16": "store_u16({}, u16({}))",
    "i8": "store_u8({}, u32({}))",
    "u8": "store_u8({}, u32({}))",
    "i1": "store_u8({}, cuda.selp({}, u32(1), u32(0)))",
}


def load_snippet(dtype: str) -> Snippet:
    """Loads one element: parameter `address` (u64); the result is in the register type."""
    return Snippet(("address",), (), _SCALAR_LOADS[dtype].format("address"))


def store_snippet(dtype: str) -> Snippet:
    """Stores one element, rounded: parameters `address` (u64) and `value` (in the register type)."""
    return Snippet(("address", "value"), (_SCALAR_STORES[dtype].format("address", "value"),))


def float8_unpacked(dtype: str, word: str, names: Sequence[str]) -> list[str]:
    """Statements that make locals of the four floats of 8 bits of a word (u32)."""
    low, high = ", ".join(names[:2]), ", ".join(names[2:])
    return [f"{low} = unpack_{dtype}(u16({word}))", f"{high} = unpack_{dtype}(u16(u32({word}) >> u32(16)))"]


def float8_packed(dtype: str, values: Sequence[str]) -> str:
    """An expression for the u32 word of four floats of 8 bits, or the u16 one of two, rounded."""
    low, *high = (f"pack_{dtype}({values[i]}, {values[i + 1]})" for i in range(0, len(values), 2))
    return f"u32(u32({low}) | u32(u32({high[0]}) << u32(16)))" if high else low


def load_text(dtype: str, address: str) -> str:
    """An expression that loads one element into its register."""
    return _SCALAR_LOADS[dtype].format(address)


def store_text(dtype: str, address: str, value: str) -> str:
    """A statement that stores one element, rounded."""
    return _SCALAR_STORES[dtype].format(address, value)


def element_text(access: Access, indices: Sequence[str], index_type: str = "i32") -> str:
    """The number of the element that `access` touches at `indices`, one name for each dim it has a stride for."""
    terms = [
        name if stride == 1 else f"{name} * {stride}"
        for name, stride in zip(indices, access.strides, strict=True)
        if stride != 0
    ]
    terms += [str(access.offset)] if access.offset or not terms else []
    return f"{index_type}({' + '.join(terms)})"


def address_text(base: str, element: str, dtype: str) -> str:
    """The address of an element of a buffer that starts at `base`."""
    return f"{base} + u64(i64({element}) * {ELEMENT_BYTES[dtype]})"


def index_type(accesses: Sequence[Access], sizes: Sequence[int]) -> str:
    """The integer type that holds every element number, and those of threads past the end: `i32`, else `i64`."""
    last = (
        access.offset + sum(s * (size - 1) for s, size in zip(access.strides, sizes, strict=True))
        for access in accesses
    )
    return "i32" if max(last, default=0) < (1 << 31) - (1 << 22) else "i64"


# Epilogues


def point_snippet(
    kernel: KernelOp,
    accumulators: int,
    inputs: Sequence[BufferRef],
    outputs: Sequence[BufferRef],
    rounding: Rounding = "fused",
) -> Snippet:
    """A one-phase program without reductions at one point, on accumulators in registers.

    Args:
        kernel: Its first `accumulators` operands are accumulators, the others lie in memory.
        inputs, outputs: Of the operands in memory, and of its outputs.
        rounding: Where values of narrow floats are rounded.

    Returns:
        A snippet with the parameters acc0 .. (f32, or the register type of the accumulator), i0 .. (one i32 index for
        each parallel dim), in0 .. (u64, where each operand in memory starts) and out0 .. (u64, likewise). It loads what
        it needs; its result is the value of the output, or a tuple of them, not rounded: storing is the kernel's.
    """
    dims = len(kernel.parallel_sizes)
    indices = [f"i{dim}" for dim in range(dims)]
    refs = (*inputs, *outputs)
    maps = (*kernel.in_maps[accumulators:], *kernel.out_maps)
    accesses = [access_of(m, ref.strides, ref.dtype) for m, ref in zip(maps, refs, strict=True)]
    index = index_type(accesses, kernel.parallel_sizes)
    text = ScalarText(rounding)
    for position, argument in enumerate(kernel.body.block.args):
        if position < accumulators:
            name = f"acc{position}"
            dtype = dtype_of(argument)
            rounds = rounding == "strict" and dtype in NARROW_FLOATS
            text.names[argument] = text.fresh(rounded_text(name, dtype)) if rounds else name
        elif argument.uses:
            access = accesses[position - accumulators]
            element = element_text(access, indices, index)
            address = address_text(f"in{position - accumulators}", element, access.dtype)
            text.names[argument] = text.fresh(load_text(access.dtype, address))
    stored: dict[int, str] = {}
    (phase,) = kernel.phases
    for op in phase.body.block.ops:
        if isinstance(op, StoreOp):
            stored[op.output.value.data] = text.value(op.value)
        elif not isinstance(op, YieldOp):
            text.emit(op)
    results = [stored[output] for output in sorted(stored)]
    return Snippet(
        (
            *(f"acc{i}" for i in range(accumulators)),
            *indices,
            *(f"in{k}" for k in range(len(inputs))),
            *(f"out{o}" for o in range(len(outputs))),
        ),
        tuple(text.lines),
        results[0] if len(results) == 1 else f"({', '.join(results)})",
    )
