"""Code that rounds rows of x to 8 bits for products with blocks: once for all panels of the weight.

Neighbours that share a step become a record: the step, the sum of what they are rounded to, what the sum of products
starts from, and the multiples of the step as signed bytes. `aicf/semantics/quantised_blocks.py` defines the rounding,
and the bits are those that it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import F32, I8, I32, Emitter, Value, ir
from aicf.backends.cpu.families.blocks.addresses import row_address
from aicf.backends.cpu.families.blocks.problem import BlocksProblem
from aicf.backends.cpu.families.blocks.rounded.schedule import (
    ELEMENTS_AT,
    OFFSET_AT,
    STEP_AT,
    SUM_AT,
    record_bytes,
    row_bytes,
)
from aicf.dialects.block_bits import RUN

_ABSOLUTE, _INFINITY, _NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC00000
_LEAST = 27 << 23
"""Bits of 2^-100, the least magnitude that a step follows from."""
_STEPS = 127.0


@dataclass(frozen=True)
class RoundedActivations:
    """Rows of x, and where their records are."""

    em: Emitter
    problem: BlocksProblem

    def emit(self, x: Value, first: Value, rows: int, target: Value) -> None:
        """Rounds `rows` rows of x from row `first` on."""
        em, problem = self.em, self.problem
        together, nbytes = problem.bits.rounded_together, record_bytes(problem)

        @em.each(0, rows)
        def row(number: Value) -> None:
            source = row_address(em, x, problem.x, em.b.add(first, number))
            out = em.moved(target, number, row_bytes(problem), "u8")

            @em.each(0, problem.k // together)
            def group(index: Value) -> None:
                start = em.moved(source, index, together * problem.x.strides[-1], "f32")
                self._group(start, em.moved(out, index, nbytes, "u8"))

    def _group(self, x: Value, out: Value) -> None:
        em, b, step = self.em, self.em.b, self.problem.x.strides[-1]
        runs = [
            em.load_strided(em.address(x, run * RUN * step, "f32"), step, "f32", RUN)
            for run in range(self.problem.bits.rounded_together // RUN)
        ]
        largest, is_finite = self._largest(runs)
        wide = em.splat(b.fdiv(em.const("f32", 1, _STEPS), largest), RUN)
        known, zero = em.splat(is_finite, RUN), em.const("f32", RUN, 0.0)
        total = em.const("i32", RUN, 0)
        for number, run in enumerate(runs):
            # Where a NaN is the largest, `wide` is NaN, too, and to convert a product with it is undefined.
            rounded = em.intrinsic("rint", b.select(known, b.fmul(run, wide), zero))
            multiples = b.fptosi(rounded, em.type("i32", RUN))
            at = em.address(out, ELEMENTS_AT + RUN * number, "u8")
            em.store(b.trunc(multiples, ir.VectorType(I8, RUN)), at, "u8", RUN)
            total = b.add(total, multiples)
        whole = self._reduced("add", total)
        size = b.fdiv(largest, em.const("f32", 1, _STEPS))
        size = b.select(is_finite, size, b.bitcast(I32(_NAN), F32))
        self._put(out, STEP_AT, size)
        self._put(out, SUM_AT, b.fmul(b.sitofp(whole, F32), size))
        self._put(out, OFFSET_AT, b.mul(whole, I32(-self.problem.bits.offset)))

    def _largest(self, runs: Sequence[Value]) -> tuple[Value, Value]:
        """The largest magnitude, at least 2^-100, and whether all elements are finite."""
        em, b = self.em, self.em.b
        bits = [b.and_(b.bitcast(run, em.type("i32", RUN)), em.const("i32", RUN, _ABSOLUTE)) for run in runs]
        most = bits[0]
        for each in bits[1:]:
            most = em.intrinsic("umax", most, each)
        top = em.intrinsic("umax", self._reduced("umax", most), I32(_LEAST))
        return b.bitcast(top, F32), b.icmp_unsigned("<", top, I32(_INFINITY))

    def _reduced(self, how: str, vector: Value) -> Value:
        signature = ir.FunctionType(I32, [vector.type])
        return self.em.b.call(self.em.declare(f"llvm.vector.reduce.{how}.v{RUN}i32", signature), [vector])

    def _put(self, out: Value, byte: int, value: Value) -> None:
        self.em.b.store(value, self.em.address(out, byte, "u8"), align=4)
