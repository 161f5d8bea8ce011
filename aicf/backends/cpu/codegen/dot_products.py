"""Sums plus products of neighbouring short terms, which a vector of 32-bit elements holds side by side."""

from __future__ import annotations

from aicf.backends.cpu.codegen.ir_builder import I16, Emitter, Value, ir

_PAIR_PRODUCTS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
"""Lanes of i32 to the instruction that multiplies pairs of i16 and adds the two products."""

_DOT_BITS = {4: 128, 8: 256, 16: 512}
"""Lanes of 32 bits to the bits of a vector, which the names of instructions for dot products end with."""


class _BFloat(ir.Type):
    """bf16, which llvmlite has no type for."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def add_pairs(em: Emitter, sums: Value, x: Value, y: Value) -> Value:
    """`sums` plus both products of each pair: `x` and `y` are vectors of i32 that hold two i16 each.

    Sums wrap around. x86 has one instruction for the two products, and for all of it with avx512vnni; elsewhere it is
    written out.
    """
    lanes = x.type.count
    if "avx512vnni" in em.level.features and lanes in _DOT_BITS:
        return _dot(em, "avx512.vpdpwssd", sums, x, y)
    if em.level.architecture == "x86_64" and lanes in _PAIR_PRODUCTS:
        short = ir.VectorType(I16, 2 * lanes)
        callee = em.declare(_PAIR_PRODUCTS[lanes], ir.FunctionType(x.type, [short, short]))
        return em.b.add(em.b.call(callee, [em.b.bitcast(x, short), em.b.bitcast(y, short)]), sums)
    sixteen = em.const("i32", lanes, 16)
    firsts = (em.b.ashr(em.b.shl(each, sixteen), sixteen) for each in (x, y))
    seconds = (em.b.ashr(each, sixteen) for each in (x, y))
    return em.b.add(em.b.add(em.b.mul(*firsts), em.b.mul(*seconds)), sums)


def add_quads(em: Emitter, sums: Value, unsigned: Value, signed: Value) -> Value:
    """`sums` plus the four products of each quad: vectors of i32 that hold four u8, and four i8.

    Sums wrap around. The level must have avx512vnni.
    """
    return _dot(em, "avx512.vpdpbusd", sums, unsigned, signed)


def add_bf16_pairs(em: Emitter, sums: Value, x: Value, y: Value) -> Value:
    """`sums`, of f32, plus both products of each pair: `x` and `y` are vectors of i32 that hold two bf16 each.

    Each addition rounds to nearest even, and subnormal numbers count as 0. The level must have avx512bf16.
    """
    terms = ir.VectorType(_BFloat(), 2 * sums.type.count)
    return _dot(em, "avx512bf16.dpbf16ps", sums, em.b.bitcast(x, terms), em.b.bitcast(y, terms))


def _dot(em: Emitter, name: str, sums: Value, x: Value, y: Value) -> Value:
    signature = ir.FunctionType(sums.type, [sums.type, x.type, y.type])
    callee = em.declare(f"llvm.x86.{name}.{_DOT_BITS[sums.type.count]}", signature)
    return em.b.call(callee, [sums, x, y])
