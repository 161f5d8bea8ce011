"""Code that reads codes and factors out of a block as it lies in a file."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.cpu.codegen.ir_builder import F32, I8, I16, I32, Emitter, Value, ir
from aicf.dialects.block_bits import RUN, Bits, BlockBits, Factor

_BYTES = ir.VectorType(I8, RUN)


def read_codes(em: Emitter, bits: BlockBits, block: Value, run: int) -> Value:
    """The codes of a run of the block at an address: u8[16]."""
    found: Value | None = None
    for each in bits.codes(run):
        read = _single_bits(em, block, each) if each.by_bit else _fields(em, block, each)
        found = read if found is None else em.b.or_(found, read)
    return em.b.xor(found, em.const("u8", RUN, bits.flips)) if bits.flips else found


def widen_codes(em: Emitter, bits: BlockBits, codes: Value) -> Value:
    """The values of the codes of a run, less the offset: f32[16]."""
    if bits.floats is not None:
        return em.reread(codes, "u8", bits.floats, RUN)
    wide = em.b.uitofp(codes, em.type("f32", RUN))
    return em.b.fsub(wide, em.const("f32", RUN, bits.offset)) if bits.offset else wide


def _fields(em: Emitter, block: Value, bits: Bits) -> Value:
    """Bits of 16 neighbouring bytes."""
    return _taken(em, em.load(em.address(block, bits.byte, "u8"), "u8", RUN), bits, RUN)


def _single_bits(em: Emitter, block: Value, bits: Bits) -> Value:
    """The 16 bits of two bytes."""
    both = em.b.load(em.address(block, bits.byte, "u8"), align=1, typ=I16)
    moved = em.b.lshr(em.splat(both, RUN), ir.Constant(ir.VectorType(I16, RUN), list(range(RUN))))
    ones = em.b.and_(em.b.trunc(moved, _BYTES), em.const("u8", RUN, 1))
    return em.b.shl(ones, em.const("u8", RUN, bits.to))


def _taken(em: Emitter, value: Value, bits: Bits, lanes: int) -> Value:
    """A field of bytes, moved to where it belongs in the number."""
    if bits.shift:
        value = em.b.lshr(value, em.const("u8", lanes, bits.shift))
    if bits.shift + bits.width < 8:
        value = em.b.and_(value, em.const("u8", lanes, (1 << bits.width) - 1))
    return em.b.shl(value, em.const("u8", lanes, bits.to)) if bits.to else value


def read_factor(em: Emitter, factor: Factor, block: Value, part: int) -> Value:
    """A factor of a part of the block at an address: f32."""
    at = em.address(block, factor.byte + part * factor.step, "u8")
    if factor.stored == "f32":
        value = em.b.load(at, align=1, typ=F32)
    else:
        value = em.reread(em.b.load(at, align=1, typ=I16), "i16", "f16", 1)
    if factor.number is None:
        return value
    number = _number(em, factor.number(part), block)
    wide = em.b.sext(number, I32) if factor.signed else em.b.zext(number, I32)
    return em.b.fmul(value, em.b.sitofp(wide, F32))


def _number(em: Emitter, fields: Sequence[Bits], block: Value) -> Value:
    found: Value | None = None
    for bits in fields:
        read = _taken(em, em.load(em.address(block, bits.byte, "u8"), "u8", 1), bits, 1)
        found = read if found is None else em.b.or_(found, read)
    return found
