"""Code between f32 registers and the bits of f16, bf16 and floats of 8 bits in memory, scalars and vectors alike.

Widening is exact; narrowing rounds once, to nearest and to even between two, and a NaN stays one. f16 takes the
instructions of the level where it has them, and the same bits come from integer code where it has not. Floats of 8 bits
are widened by way of f16, which holds all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import llvmlite.ir

from aicf.backends.cpu.target import CpuLevel

ir: Any = llvmlite.ir
"""llvmlite ships no type information."""
Value: TypeAlias = Any
"""An ``llvmlite.ir`` value."""

_F32 = ir.FloatType()
_F16 = ir.HalfType()
_I32 = ir.IntType(32)
_I16 = ir.IntType(16)
_I8 = ir.IntType(8)

_F32_SIGN, _F32_INFINITY = 0x80000000, 0x7F800000
_F16_BIAS_STEP = 112
"""Exponent bias of f32 less that of f16."""
_F16_INFINITY = 0x7C00
_BF16_QUIET = 0x0040
_E4M3_NAN = 0x7F
_E4M3_STEP = 8
"""Exponent bias of f16 less that of f8E4M3FN."""


@dataclass(frozen=True)
class _Format:
    """A float narrower than f32.

    Args:
        bits, mantissa: Of the number, and of its mantissa.
        bias: Of its exponent.
        overflow: The bits that a number too large for it becomes.
        nan: Those that every NaN has.
    """

    bits: int
    mantissa: int
    bias: int
    overflow: int
    nan: int


_FORMATS: Mapping[str, _Format] = {
    "f16": _Format(16, 10, 15, 0x7C00, 0x7E00),
    "f8E4M3FN": _Format(8, 3, 7, _E4M3_NAN, _E4M3_NAN),
    "f8E5M2": _Format(8, 2, 15, 0x7C, 0x7E),
}


def widened(b: Any, level: CpuLevel, bits: Value, dtype: str) -> Value:
    """The f32 that `bits` of a narrow float are: i16, or i8 of a float of 8 bits."""
    if dtype == "f8E5M2":
        return widened(b, level, b.shl(b.zext(bits, _like(bits, _I16)), _of(bits, _I16, 8)), "f16")
    if dtype == "f8E4M3FN":
        return _from_e4m3(b, level, b.zext(bits, _like(bits, _I16)))
    if dtype == "bf16":
        return b.bitcast(b.shl(b.zext(bits, _like(bits, _I32)), _of(bits, _I32, 16)), _like(bits, _F32))
    if level.has_f16:
        return b.fpext(b.bitcast(bits, _like(bits, _F16)), _like(bits, _F32))
    return _from_f16(b, b.zext(bits, _like(bits, _I32)))


def narrowed(b: Any, level: CpuLevel, x: Value, dtype: str) -> Value:
    """The bits of the narrow float nearest to `x` (f32): i16, or i8 of a float of 8 bits."""
    if dtype == "f16" and level.has_f16:
        return b.bitcast(b.fptrunc(x, _like(x, _F16)), _like(x, _I16))
    bits = b.bitcast(x, _like(x, _I32))
    if dtype == "bf16":
        return b.trunc(_to_bf16(b, x, bits), _like(x, _I16))
    return b.trunc(_to_format(b, bits, _FORMATS[dtype]), _like(x, _I16 if dtype == "f16" else _I8))


def rounded_to_odd(b: Any, x: Value) -> Value:
    """An f64 as f32 with its last bit set wherever something was cut off.

    Rounding that once more to a narrow float is then as if there had been one rounding.
    """
    nearest = b.fptrunc(x, _like(x, _F32))
    back = b.fpext(nearest, x.type)
    bits = b.bitcast(nearest, _like(x, _I32))
    inexact = b.fcmp_ordered("!=", back, x)
    is_negative = b.fcmp_ordered("<", x, ir.Constant(x.type, _all(x, 0.0)))
    above = b.fcmp_ordered(">", back, x)
    # Away from zero: the bits of a smaller magnitude are those of the number before.
    away = b.and_(inexact, b.xor(above, is_negative))
    cut = b.sub(bits, b.zext(away, bits.type))
    return b.bitcast(b.or_(cut, b.zext(inexact, bits.type)), nearest.type)


def _like(value: Value, scalar: Any) -> Any:
    """`scalar` with as many lanes as `value`."""
    return ir.VectorType(scalar, value.type.count) if isinstance(value.type, ir.VectorType) else scalar


def _all(value: Value, number: float) -> Any:
    """What a constant with `number` in every lane of `value` is made of."""
    return [number] * value.type.count if isinstance(value.type, ir.VectorType) else number


def _of(value: Value, scalar: Any, number: int) -> Value:
    """A constant integer with as many lanes as `value`."""
    return ir.Constant(_like(value, scalar), _all(value, number))


def _to_bf16(b: Any, x: Value, bits: Value) -> Value:
    """Half a unit less one added, one more if the last bit kept is set: then the upper half is the nearest."""
    upper = b.lshr(bits, _of(bits, _I32, 16))
    half = b.add(b.and_(upper, _of(bits, _I32, 1)), _of(bits, _I32, 0x7FFF))
    nearest = b.lshr(b.add(bits, half), _of(bits, _I32, 16))
    return b.select(b.fcmp_unordered("uno", x, x), b.or_(upper, _of(bits, _I32, _BF16_QUIET)), nearest)


def _from_f16(b: Any, bits: Value) -> Value:
    """The exponent moved by a multiplication, which makes subnormal numbers normal as well."""
    magnitude = b.shl(b.and_(bits, _of(bits, _I32, 0x7FFF)), _of(bits, _I32, 13))
    type_ = _like(bits, _F32)
    scale = ir.Constant(type_, _all(bits, float(2**_F16_BIAS_STEP)))
    finite = b.bitcast(b.fmul(b.bitcast(magnitude, type_), scale), bits.type)
    is_special = b.icmp_unsigned(">=", magnitude, _of(bits, _I32, _F16_INFINITY << 13))
    wide = b.select(is_special, b.or_(magnitude, _of(bits, _I32, _F32_INFINITY)), finite)
    sign = b.shl(b.and_(bits, _of(bits, _I32, 0x8000)), _of(bits, _I32, 16))
    return b.bitcast(b.or_(wide, sign), type_)


def _from_e4m3(b: Any, level: CpuLevel, bits: Value) -> Value:
    """As an f16 of the same mantissa, whose exponent a multiplication moves; the one NaN apart."""
    magnitude = b.and_(bits, _of(bits, _I16, 0x7F))
    sign = b.shl(b.and_(bits, _of(bits, _I16, 0x80)), _of(bits, _I16, 8))
    is_nan = b.icmp_unsigned("==", magnitude, _of(bits, _I16, _E4M3_NAN))
    half = b.select(is_nan, _of(bits, _I16, _FORMATS["f16"].nan), b.shl(magnitude, _of(bits, _I16, 7)))
    wide = widened(b, level, b.or_(sign, half), "f16")
    return b.fmul(wide, ir.Constant(wide.type, _all(wide, float(2**_E4M3_STEP))))


def _to_format(b: Any, bits: Value, target: _Format) -> Value:
    """By range: subnormal results by an addition that rounds at their last bit, normal ones as bf16 does; what is too
    large after rounding is cut off at `overflow`."""

    def number(value: int) -> Value:
        return _of(bits, _I32, value)

    type_ = _like(bits, _F32)
    dropped = 23 - target.mantissa
    sign = b.lshr(b.and_(bits, number(_F32_SIGN)), number(32 - target.bits))
    magnitude = b.and_(bits, number(_F32_SIGN - 1))
    # The last bit of this number is the least subnormal one.
    exponent = 1 - target.bias - target.mantissa + 23
    least = ir.Constant(type_, _all(bits, 2.0**exponent))
    added = b.bitcast(b.fadd(b.bitcast(magnitude, type_), least), bits.type)
    small = b.sub(added, number((127 + exponent) << 23))
    moved = b.sub(magnitude, number((127 - target.bias) << 23))
    up = b.add(b.and_(b.lshr(moved, number(dropped)), number(1)), number((1 << (dropped - 1)) - 1))
    normal = b.lshr(b.add(moved, up), number(dropped))
    least_normal = (127 + 1 - target.bias) << 23
    found = b.select(b.icmp_unsigned("<", magnitude, number(least_normal)), small, normal)
    is_large = b.icmp_unsigned(">=", found, number(target.overflow))
    found = b.select(is_large, number(target.overflow), found)
    payload = b.and_(b.lshr(magnitude, number(dropped)), number((1 << target.mantissa) - 1))
    nan = b.or_(payload, number(target.nan))
    return b.or_(sign, b.select(b.icmp_unsigned(">", magnitude, number(_F32_INFINITY)), nan, found))
