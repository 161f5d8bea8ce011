"""Code that prepares rows of x for products with blocks: once for all panels of the weight.

A part of a row becomes a record: what its sums are scaled by, the sum of the row's elements, and the elements.

Where products are exact, the elements are whole numbers times a power of two, which the largest of the part decides:
digits, the lowest first, which are three signed bytes, or a signed byte and the rest as words of 16 bits. An element is
rounded to a step of about 2^-22 of the largest of its part, which has 16, 32 or 128 elements by the scheme, so a small
element next to a large one keeps fewer bits than f32 has. What is left are products of whole numbers, whose sums in i32
are exact. Otherwise the elements stay f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import F32, I8, I16, I32, Emitter, Value, ir
from aicf.backends.cpu.families.blocks.addresses import row_address
from aicf.backends.cpu.families.blocks.problem import GROUP, WORD_ORDER, BlocksProblem
from aicf.backends.cpu.families.blocks.schedule import (
    DIGIT_BYTES,
    DIGITS,
    ELEMENTS_AT,
    OFFSETS_AT,
    SCALE_AT,
    SUM_AT,
    Arithmetic,
    record_bytes,
)
from aicf.dialects.block_bits import RUN

_ABSOLUTE, _INFINITY, _NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC00000
_SLACK = 0.50390625
"""Half of what the largest element is raised by, so that its highest digit fits a signed byte."""
_EXPONENT_BITS = 23
_TO_SCALE, _TO_INVERSE = 22, 276
"""From the raised exponent to those of the scale, lower by so much, and of its inverse, which with it is so much."""
_LEAST_EXPONENT = 23
"""Of a raised element: below, scales would be subnormal."""


@dataclass(frozen=True)
class Activations:
    """Rows of x, and where their records are."""

    em: Emitter
    problem: BlocksProblem
    arithmetic: Arithmetic

    def emit(self, x: Value, first: Value, rows: int, target: Value) -> None:
        """Prepares `rows` rows of x from row `first` on."""
        em, problem = self.em, self.problem
        part_bytes = record_bytes(problem, self.arithmetic)

        @em.each(0, rows)
        def row(number: Value) -> None:
            source = row_address(em, x, problem.x, em.b.add(first, number))
            out = em.moved(target, number, problem.parts * part_bytes, "u8")

            @em.each(0, problem.parts)
            def part(index: Value) -> None:
                start = em.moved(source, index, problem.bits.part * problem.x.strides[-1], "f32")
                self._part(start, em.moved(out, index, part_bytes, "u8"))

    def _part(self, x: Value, out: Value) -> None:
        em, step = self.em, self.problem.x.strides[-1]
        runs = [
            em.load_strided(em.address(x, run * RUN * step, "f32"), step, "f32", RUN)
            for run in range(self.problem.bits.part // RUN)
        ]
        (self._plain if self.arithmetic == "f32" else self._digits)(runs, out)

    def _plain(self, runs: Sequence[Value], out: Value) -> None:
        em = self.em
        for number, run in enumerate(runs):
            em.store(run, em.address(out, ELEMENTS_AT + 4 * RUN * number, "u8"), "f32", RUN)
        total = runs[0]
        for run in runs[1:]:
            total = em.b.fadd(total, run)
        while isinstance(total.type, ir.VectorType):
            total = em.b.fadd(*em.halves(total))
        self._put(out, SUM_AT, total)

    def _digits(self, runs: Sequence[Value], out: Value) -> None:
        em, b = self.em, self.em.b
        scale, inverse, is_finite = self._scale(runs)
        wide, zero = em.splat(inverse, RUN), em.const("f32", RUN, 0.0)
        known = em.splat(is_finite, RUN)
        last = DIGITS[self.arithmetic] - 1
        sums = [em.const("i32", RUN, 0)] * (last + 1)
        for number, run in enumerate(runs):
            rounded = em.intrinsic("rint", b.fmul(b.select(known, run, zero), wide))
            rest = b.fptosi(rounded, em.type("i32", RUN))
            for digit in range(last + 1):
                value = self._lowest_byte(rest) if digit < last else rest
                self._store_digits(value, out, digit * self.problem.bits.part + number * RUN)
                sums[digit] = b.add(sums[digit], value)
                rest = b.ashr(b.sub(rest, value), em.const("i32", RUN, 8))
        totals = [self._reduced("add", each) for each in sums]
        self._put(out, SCALE_AT, scale)
        for digit, total in enumerate(totals):
            self._put(out, OFFSETS_AT + 4 * digit, b.mul(total, I32(-self.problem.bits.offset)))
        whole = totals[-1]
        for total in reversed(totals[:-1]):
            whole = b.add(b.shl(whole, I32(8)), total)
        self._put(out, SUM_AT, b.fmul(b.sitofp(whole, F32), scale))

    def _store_digits(self, digits: Value, out: Value, number: int) -> None:
        """Of a run, from element `number` of all digits on. Words of 16 bits lie as those of a code's bytes do."""
        em = self.em
        at = em.address(out, ELEMENTS_AT + number * DIGIT_BYTES[self.arithmetic], "u8")
        if self.arithmetic == "digits":
            em.store(em.b.trunc(digits, ir.VectorType(I8, RUN)), at, "u8", RUN)
            return
        words = em.b.trunc(digits, ir.VectorType(I16, RUN))
        order = [first + column for first in range(0, RUN, GROUP) for column in WORD_ORDER]
        turned = em.b.shuffle_vector(words, words, ir.Constant(ir.VectorType(I32, RUN), order))
        em.store(turned, at, "i16", RUN)

    def _lowest_byte(self, value: Value) -> Value:
        em, places = self.em, self.em.const("i32", RUN, 24)
        return em.b.ashr(em.b.shl(value, places), places)

    def _scale(self, runs: Sequence[Value]) -> tuple[Value, Value, Value]:
        """A power of two, its inverse, and whether all elements are finite; NaN in place of the first if not."""
        em, b = self.em, self.em.b
        bits = [b.and_(b.bitcast(run, em.type("i32", RUN)), em.const("i32", RUN, _ABSOLUTE)) for run in runs]
        largest = bits[0]
        for each in bits[1:]:
            largest = em.intrinsic("umax", largest, each)
        top = self._reduced("umax", largest)
        is_finite = b.icmp_unsigned("<", top, I32(_INFINITY))
        raised = b.bitcast(b.fmul(b.bitcast(top, F32), em.const("f32", 1, _SLACK)), I32)
        exponent = b.add(b.lshr(raised, I32(_EXPONENT_BITS)), I32(1))
        exponent = em.intrinsic("umax", exponent, I32(_LEAST_EXPONENT))
        scale = b.shl(b.sub(exponent, I32(_TO_SCALE)), I32(_EXPONENT_BITS))
        inverse = b.shl(b.sub(I32(_TO_INVERSE), exponent), I32(_EXPONENT_BITS))
        scale = b.select(is_finite, scale, I32(_NAN))
        return b.bitcast(scale, F32), b.bitcast(inverse, F32), is_finite

    def _reduced(self, how: str, vector: Value) -> Value:
        signature = ir.FunctionType(I32, [vector.type])
        return self.em.b.call(self.em.declare(f"llvm.vector.reduce.{how}.v{RUN}i32", signature), [vector])

    def _put(self, out: Value, byte: int, value: Value) -> None:
        self.em.b.store(value, self.em.address(out, byte, "u8"), align=4)
