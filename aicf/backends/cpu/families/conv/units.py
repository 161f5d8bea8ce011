"""Units of channels in code: how tiles load and multiply them, and how copies of the input are made of them.

A unit is one element, a pair of i16, or a quad of u8. An i8 of the input becomes a u8, 128 larger, by its first bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.cpu.codegen.dot_products import add_pairs, add_quads
from aicf.backends.cpu.codegen.ir_builder import I32, Emitter, Value, ir
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.gemm.pack.pairs import joined


class Units:
    """Units of one element.

    Args:
        lanes: Sums of a vector.
    """

    def __init__(self, em: Emitter, problem: ConvProblem, lanes: int) -> None:
        self.em = em
        self.p = problem
        self.lanes = lanes

    @property
    def place(self) -> str:
        """Element type of what strides of a copy count; see `ConvSpec.place_bytes`."""
        return self.p.dtype

    def load(self, address: Value, is_copied: bool) -> Value:
        """A unit in every lane."""
        return self.em.splat(self.em.load(address, self.p.dtype, 1), self.lanes)

    def multiply_add(self, x: Value, weight: Value, sums: Value) -> Value:
        """`sums` plus the products of units of the input and of the weight."""
        if self.p.dtype in ("f32", "f64"):
            return self.em.fma(x, weight, sums)
        return self.em.b.add(self.em.b.mul(x, weight), sums)

    def joined(self, channels: Sequence[Value]) -> Value:
        """A vector of units of elements of neighbouring channels; those that are missing are zeros."""
        return convert(Scalars(self.em, self.lanes), channels[0], self.p.element, self.p.dtype)

    def around(self, lanes: int) -> Value:
        """What lies around the input, as units."""
        return self.em.const(self.p.dtype, lanes, self.p.around)


class Pairs(Units):
    """Units of two i16, the second of which multiplies zeros where its channel is missing."""

    def multiply_add(self, x: Value, weight: Value, sums: Value) -> Value:
        return add_pairs(self.em, sums, x, weight)

    def joined(self, channels: Sequence[Value]) -> Value:
        second = channels[1] if len(channels) > 1 else None
        return joined(Scalars(self.em, self.lanes), self.p.element, "i16", channels[0], second)

    def around(self, lanes: int) -> Value:
        return self.em.const(self.p.dtype, lanes, (self.p.around & 0xFFFF) * 0x10001)


class Quads(Units):
    """Units of four u8."""

    @property
    def place(self) -> str:
        return "i8"

    def load(self, address: Value, is_copied: bool) -> Value:
        unit = self.em.splat(self.em.b.load(address, align=1, typ=I32), self.lanes)
        return unit if is_copied else self.shifted(unit)

    def multiply_add(self, x: Value, weight: Value, sums: Value) -> Value:
        return add_quads(self.em, sums, x, weight)

    def joined(self, channels: Sequence[Value]) -> Value:
        em = self.em
        wide = ir.VectorType(I32, self.lanes)
        quad = em.b.zext(channels[0], wide)
        for number, channel in enumerate(channels[1:], 1):
            quad = em.b.or_(quad, em.b.shl(em.b.zext(channel, wide), em.const("i32", self.lanes, 8 * number)))
        return self.shifted(quad)

    def shifted(self, vector: Value) -> Value:
        """Bytes of the input as u8."""
        if not self.p.shift:
            return vector
        lanes = vector.type.count
        is_bytes = vector.type.element.width == 8
        bits = self.em.const("i8", lanes, -128) if is_bytes else self.em.const("i32", lanes, -0x7F7F7F80)
        return self.em.b.xor(vector, bits)

    @property
    def byte_around(self) -> int:
        """What lies around the input, as u8."""
        return (self.p.around + self.p.shift) & 0xFF

    def around(self, lanes: int) -> Value:
        return self.em.const("i8", lanes, self.byte_around)


def units_of(em: Emitter, problem: ConvProblem, lanes: int) -> Units:
    """The units of a problem."""
    kind = {1: Units, 2: Pairs, 4: Quads}[problem.terms]
    return kind(em, problem, lanes)
