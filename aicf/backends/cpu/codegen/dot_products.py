"""Sums plus products of neighbouring short terms, which a vector of 32-bit elements holds side by side."""

from __future__ import annotations

from aicf.backends.cpu.codegen.ir_builder import I8, I16, Emitter, Value, ir

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


_BYTE_PRODUCTS = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.avx512.pmaddubs.w.512",
}
"""Lanes of i32 to the instruction that multiplies u8 by i8 and adds two products each in i16, which saturates."""
_UNSATURATED_BITS = 7
"""Of u8 whose two products with i8 above -128 fit an i16 together."""


def add_byte_quads(em: Emitter, sums: Value, unsigned: Value, signed: Value, bits: int) -> Value:
    """As `add_quads`, on every level of x86-64, of u8 of so many bits and of i8 above -128. Sums are exact.

    Without avx512vnni u8 of 8 bits are multiplied as two of 4.
    """
    if "avx512vnni" in em.level.features:
        return add_quads(em, sums, unsigned, signed)
    if bits <= _UNSATURATED_BITS:
        return em.b.add(sums, _byte_quads(em, unsigned, signed))
    lanes = sums.type.count
    low, four = em.const("i32", lanes, 0x0F0F0F0F), em.const("i32", lanes, 4)
    upper = em.b.and_(em.b.lshr(unsigned, four), low)
    sums = em.b.add(sums, _byte_quads(em, em.b.and_(unsigned, low), signed))
    return em.b.add(sums, em.b.shl(_byte_quads(em, upper, signed), four))


def _byte_quads(em: Emitter, unsigned: Value, signed: Value) -> Value:
    """The sums of the four products of each quad."""
    lanes = unsigned.type.count
    count, short = ir.VectorType(I8, 4 * lanes), ir.VectorType(I16, 2 * lanes)
    callee = em.declare(_BYTE_PRODUCTS[lanes], ir.FunctionType(short, [count, count]))
    pairs = em.b.call(callee, [em.b.bitcast(each, count) for each in (unsigned, signed)])
    both = em.declare(_PAIR_PRODUCTS[lanes], ir.FunctionType(unsigned.type, [short, short]))
    return em.b.call(both, [pairs, em.const("i16", 2 * lanes, 1)])


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
