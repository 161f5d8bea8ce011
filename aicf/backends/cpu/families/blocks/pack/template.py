"""Code that lays a weight out in panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I1, I32, Emitter, Value, ir
from aicf.backends.cpu.families.blocks.problem import GROUP, PanelLayout
from aicf.backends.cpu.families.blocks.reading import read_codes, read_factor, widen_codes
from aicf.dialects.block_bits import RUN
from aicf.dialects.block_schemes import BLOCK_SCHEMES


@dataclass(frozen=True)
class BlockPacker:
    """Packs a weight of `rows` rows of `row_bytes` bytes, which start `row_step` bytes apart."""

    em: Emitter
    layout: PanelLayout
    rows: int
    row_bytes: int
    row_step: int

    def emit(self, source: Value, target: Value) -> None:
        """All panels."""
        em, layout = self.em, self.layout
        panel_bytes = layout.row_parts(self.row_bytes) * layout.part_bytes

        @em.panels(self.rows, layout.lanes)
        def panel(number: Value, rows: int) -> None:
            first = em.moved(source, number, layout.lanes * self.row_step, "u8")
            out = em.moved(target, number, panel_bytes, "u8")
            if rows < layout.lanes:
                self._clear(out, panel_bytes)
            em.each(0, rows)(lambda lane: self._row(em.moved(first, lane, self.row_step, "u8"), out, lane))

    def _clear(self, panel: Value, count: int) -> None:
        em = self.em
        em.each(0, count)(lambda byte: em.store(em.const("u8", 1, 0), em.address(panel, byte, "u8"), "u8", 1))

    def _row(self, row: Value, panel: Value, lane: Value) -> None:
        em, layout = self.em, self.layout
        scheme = BLOCK_SCHEMES[layout.scheme]
        parts = scheme.length // layout.bits.part

        @em.each(0, self.row_bytes // scheme.nbytes)
        def block(number: Value) -> None:
            start = em.moved(row, number, scheme.nbytes, "u8")
            out = em.moved(panel, number, parts * layout.part_bytes, "u8")
            for part in range(parts):
                self._part(start, part, em.address(out, part * layout.part_bytes, "u8"), lane)

    def _part(self, block: Value, part: int, out: Value, lane: Value) -> None:
        em, layout, bits = self.em, self.layout, self.layout.bits
        for number in range(layout.chunks):
            self._chunk(
                block, part * layout.chunks + number, em.address(out, number * layout.chunk_bytes, "u8"), lane
            )
        factors = [(bits.scale, layout.scales, 1)]
        if bits.minimum is not None:
            factors.append((bits.minimum, layout.minima, bits.sign))
        for factor, start, sign in factors:
            value = read_factor(em, factor, block, part)
            value = em.b.fneg(value) if sign < 0 else value
            if bits.floats is not None:
                value = em.b.select(self._has_nan(block, part), em.const(factor.dtype, 1, math.nan), value)
            em.store(value, em.address(em.address(out, start, "u8"), lane, factor.dtype), factor.dtype, 1)

    def _has_nan(self, block: Value, part: int) -> Value:
        """Whether a code of a part is NaN: every product with the row is, so its scale may say so for all."""
        em, bits, runs = self.em, self.layout.bits, self.layout.bits.part // RUN
        found: Value = ir.Constant(ir.VectorType(I1, RUN), None)
        for run in range(part * runs, (part + 1) * runs):
            value = widen_codes(em, bits, read_codes(em, bits, block, run))
            found = em.b.or_(found, em.b.fcmp_unordered("uno", value, value))
        return em.b.not_(em.no_lane(found))

    def _chunk(self, block: Value, chunk: int, out: Value, lane: Value) -> None:
        """The codes of a chunk of one row, as `PanelLayout` has them."""
        em, layout = self.em, self.layout
        runs = layout.chunk // RUN
        codes = [read_codes(em, layout.bits, block, chunk * runs + run) for run in range(runs)]
        if layout.bits.floats is None:
            dtype, elements = "i32", self._words(codes)
        else:
            dtype, elements = "u8", [em.lane(run, number) for run in codes for number in range(RUN)]
        for number, element in enumerate(elements):
            em.store(
                element, em.address(em.address(out, number * layout.lanes, dtype), lane, dtype), dtype, 1
            )

    def _words(self, codes: Sequence[Value]) -> list[Value]:
        """The words of the codes of runs."""
        em, layout = self.em, self.layout
        quads = ir.VectorType(I32, RUN // GROUP)
        groups = [
            em.lane(em.b.bitcast(run, quads), number) for run in codes for number in range(RUN // GROUP)
        ]
        words: list[Value] = []
        for width, source in ((layout.low_bits, 0), (layout.high_bits, layout.low_bits)):
            if width:
                count = 8 // width
                firsts = range(0, len(groups), count)
                words += [self._word(groups, first, count, width, source) for first in firsts]
        return words

    def _word(self, groups: list[Value], first: int, count: int, width: int, source: int) -> Value:
        """`width` bits of the codes of `count` groups, which start at bit `source` of each."""
        em = self.em
        mask = em.const("i32", 1, ((1 << width) - 1) * 0x01010101)
        word: Value | None = None
        for number, group in enumerate(groups[first : first + count]):
            field = em.b.and_(em.b.lshr(group, I32(source)) if source else group, mask)
            field = em.b.shl(field, I32(width * number)) if number else field
            word = field if word is None else em.b.or_(word, field)
        return word
