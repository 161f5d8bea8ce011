"""Code between f32 registers and the bits of f16 and bf16 in memory, scalars and vectors alike.

Widening is exact; narrowing rounds once, to nearest and to even between two, and a NaN stays one. f16 takes the
instructions of the level where it has them, and the same bits come from integer code where it has not.
"""

from __future__ import annotations

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

_F32_SIGN, _F32_INFINITY = 0x80000000, 0x7F800000
_F16_BIAS_STEP = 112
"""Exponent bias of f32 less that of f16."""
_F16_INFINITY, _F16_QUIET = 0x7C00, 0x0200
_BF16_QUIET = 0x0040


def widened(b: Any, level: CpuLevel, bits: Value, dtype: str) -> Value:
    """The f32 that `bits` (i16) of f16 or bf16 are."""
    if dtype == "bf16":
        return b.bitcast(b.shl(b.zext(bits, _like(bits, _I32)), _of(bits, _I32, 16)), _like(bits, _F32))
    if level.has_f16:
        return b.fpext(b.bitcast(bits, _like(bits, _F16)), _like(bits, _F32))
    return _from_f16(b, b.zext(bits, _like(bits, _I32)))


def narrowed(b: Any, level: CpuLevel, x: Value, dtype: str) -> Value:
    """The bits (i16) of the f16 or bf16 nearest to `x` (f32)."""
    if dtype == "f16" and level.has_f16:
        return b.bitcast(b.fptrunc(x, _like(x, _F16)), _like(x, _I16))
    bits = b.bitcast(x, _like(x, _I32))
    return b.trunc(_to_bf16(b, x, bits) if dtype == "bf16" else _to_f16(b, bits), _like(x, _I16))


def rounded_to_odd(b: Any, x: Value) -> Value:
    """An f64 as f32 with its last bit set wherever something was cut off.

    Rounding that once more to f16 or bf16 is then as if there had been one rounding.
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


def _to_f16(b: Any, bits: Value) -> Value:
    """By range: subnormal results by an addition that rounds at their last bit, normal ones as bf16 does."""

    def number(value: int) -> Value:
        return _of(bits, _I32, value)

    type_ = _like(bits, _F32)
    sign = b.lshr(b.and_(bits, number(_F32_SIGN)), number(16))
    magnitude = b.and_(bits, number(_F32_SIGN - 1))
    half = ir.Constant(type_, _all(bits, 0.5))
    small = b.sub(b.bitcast(b.fadd(b.bitcast(magnitude, type_), half), bits.type), number(0x3F000000))
    moved = b.sub(magnitude, number(_F16_BIAS_STEP << 23))
    up = b.add(b.and_(b.lshr(moved, number(13)), number(1)), number(0x0FFF))
    normal = b.lshr(b.add(moved, up), number(13))
    least_normal, beyond = (127 - 14) << 23, (127 + 16) << 23
    found = b.select(b.icmp_unsigned("<", magnitude, number(least_normal)), small, normal)
    found = b.select(b.icmp_unsigned(">=", magnitude, number(beyond)), number(_F16_INFINITY), found)
    payload = b.and_(b.lshr(magnitude, number(13)), number(0x03FF))
    nan = b.or_(payload, number(_F16_INFINITY | _F16_QUIET))
    return b.or_(sign, b.select(b.icmp_unsigned(">", magnitude, number(_F32_INFINITY)), nan, found))
