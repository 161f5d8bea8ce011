"""Code of a product of a weight in panels of blocks with rows that are rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.dot_products import add_byte_quads
from aicf.backends.cpu.codegen.ir_builder import I32, Value
from aicf.backends.cpu.families.blocks.problem import GROUP
from aicf.backends.cpu.families.blocks.rounded.activations import RoundedActivations
from aicf.backends.cpu.families.blocks.rounded.schedule import (
    ELEMENTS_AT,
    OFFSET_AT,
    STEP_AT,
    SUM_AT,
    record_bytes,
)
from aicf.backends.cpu.families.blocks.template import BlocksPointers, BlocksProduct
from aicf.backends.cpu.families.gemm.spec import CACHE_LINE


@dataclass(frozen=True)
class RoundedProduct(BlocksProduct):
    """See `BlocksProduct`. A record is that of neighbours that share a step; a part has one for each of its chunks.

    Args:
        prefetch_ahead: As in `RoundedSchedule`.
    """

    prefetch_ahead: int

    @property
    def _record(self) -> int:
        return self._layout.chunks * record_bytes(self.problem)

    def _prepare(self, pointers: BlocksPointers, first: Value, rows: int) -> None:
        RoundedActivations(self.em, self.problem).emit(pointers.x, first, rows, pointers.workspace)

    def _part(self, part: Value, records: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        em, lanes, bits, layout = self.em, self.schedule.lanes, self.problem.bits, self._layout
        self._prefetch(part)
        scale = em.load(em.address(part, layout.scales, "u8"), bits.scale.dtype, lanes)
        minima = None
        if bits.minimum is not None:
            minima = em.load(em.address(part, layout.minima, "u8"), bits.minimum.dtype, lanes)

        def chunk(number: Value, totals: list[Value]) -> list[Value]:
            own = [em.moved(record, number, record_bytes(self.problem), "u8") for record in records]
            exact = self._exact_sums(em.moved(part, number, layout.chunk_bytes, "u8"), own)
            for index, (record, total) in enumerate(zip(own, exact, strict=True)):
                factor = em.b.fmul(scale, self._number(record, STEP_AT))
                totals[index] = em.fma(em.b.sitofp(total, em.type("f32", lanes)), factor, totals[index])
                if minima is not None:
                    totals[index] = em.fma(minima, self._number(record, SUM_AT), totals[index])
            return totals

        return em.loop(0, layout.chunks, 1, list(sums), chunk)

    def _prefetch(self, part: Value) -> None:
        """Asks for what is read some parts later, of this panel or of those after it."""
        if self.prefetch_ahead:
            for line in range(-(-self._layout.part_bytes // CACHE_LINE)):
                self.em.prefetch(self.em.address(part, self.prefetch_ahead + CACHE_LINE * line, "u8"))

    def _exact_sums(self, chunk: Value, records: Sequence[Value]) -> list[Value]:
        """The sums of products of codes, with their offset, and multiples, in i32, for each row of x."""
        em, lanes, bits = self.em, self.schedule.lanes, self.problem.bits
        sums = [self._start_of(record) for record in records]
        words = self._words(chunk)
        for group in range(self._layout.groups):
            codes = self._field(words, group, 0)
            for index, record in enumerate(records):
                at = em.address(record, ELEMENTS_AT + GROUP * group, "u8")
                four = em.splat(em.b.load(at, align=4, typ=I32), lanes)
                sums[index] = add_byte_quads(em, sums[index], codes, four, bits.code_bits)
        return sums

    def _start_of(self, record: Value) -> Value:
        """What a sum starts from: codes are taken with their offset."""
        em, lanes = self.em, self.schedule.lanes
        if not self.problem.bits.offset:
            return em.const("i32", lanes, 0)
        return em.splat(em.b.load(em.address(record, OFFSET_AT, "u8"), align=4, typ=I32), lanes)
