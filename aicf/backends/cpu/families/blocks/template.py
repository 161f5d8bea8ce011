"""Code of a product with a weight in panels of blocks: codes become factors in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.dot_products import add_pairs, add_quads
from aicf.backends.cpu.codegen.ir_builder import I16, I32, I64, Emitter, Value, ir
from aicf.backends.cpu.codegen.panels import PanelShare
from aicf.backends.cpu.families.blocks.activations import Activations
from aicf.backends.cpu.families.blocks.addresses import row_address
from aicf.backends.cpu.families.blocks.problem import GROUP, BlocksProblem, PanelLayout
from aicf.backends.cpu.families.blocks.schedule import (
    DIGIT_BYTES,
    DIGITS,
    ELEMENTS_AT,
    OFFSETS_AT,
    SCALE_AT,
    SUM_AT,
    BlocksSchedule,
    record_bytes,
)

_UNITS = {"digits": 1, "pairs": 2, "f32": 4}
"""Vectors that the words of a group become: of four codes, of two, and of one in each lane."""
_ONES = {"digits": 0x01010101, "pairs": 0x00010001, "f32": 1}
"""One in each byte of a lane that has a code."""
_WHOLE = 0xFFFFFFFF
_FLOAT_STEP = 256.0
"""From the f16 that has the bits of an f8E4M3FN to its value."""


@dataclass(frozen=True)
class BlocksPointers:
    """Run-time arguments: x, the panels, the result, this thread's workspace, its number and how many there are, and
    which matrix each row of x has."""

    x: Value
    panels: Value
    result: Value
    workspace: Value
    tid: Value
    nthreads: Value
    indices: Value | None = None


@dataclass(frozen=True)
class BlocksProduct:
    """The product of a problem, by a schedule."""

    em: Emitter
    problem: BlocksProblem
    schedule: BlocksSchedule

    @property
    def _layout(self) -> PanelLayout:
        return PanelLayout(self.problem.scheme, self.schedule.lanes)

    @property
    def _record(self) -> int:
        return record_bytes(self.problem, self.schedule.arithmetic)

    def emit(self, pointers: BlocksPointers) -> None:
        """Chunk after chunk of rows of x: prepared, and then multiplied with this thread's panels."""
        em, problem, schedule = self.em, self.problem, self.schedule
        shared = None if schedule.threads == 1 else (pointers.tid, pointers.nthreads)
        share = PanelShare(em, problem.n, schedule.lanes, shared)

        @em.pieces(problem.m, schedule.chunk_rows)
        def chunk(first: Value, rows: int) -> None:
            self._prepare(pointers, first, rows)
            if pointers.indices is None:
                share.each(lambda number, columns: self._panel(pointers, first, rows, number, columns))
                return

            @em.each(0, rows)
            def row(number: Value) -> None:
                own = replace(pointers, panels=self._matrix(pointers, em.b.add(first, number)))
                share.each(lambda panel, columns: self._tile(own, first, number, 1, panel, columns))

    def _matrix(self, pointers: BlocksPointers, row: Value) -> Value:
        """The panels of the matrix that a row of x has."""
        em, b, problem = self.em, self.em.b, self.problem
        assert problem.indices is not None
        chosen, count = problem.indices, em.index(problem.matrices)
        each = Strided((*chosen.shape, 1), (*chosen.strides, 1), chosen.dtype)
        stated = em.load(row_address(em, pointers.indices, each, row), chosen.dtype, 1)
        index = b.sext(stated, I64) if chosen.dtype != "i64" else stated
        index = b.select(b.icmp_signed("<", index, em.index(0)), b.add(index, count), index)
        index = em.intrinsic("smin", em.intrinsic("smax", index, em.index(0)), em.index(problem.matrices - 1))
        layout = self._layout
        return em.moved(
            pointers.panels, index, layout.panels(problem.n) * problem.parts * layout.part_bytes, "u8"
        )

    def _prepare(self, pointers: BlocksPointers, first: Value, rows: int) -> None:
        """The records of `rows` rows of x from row `first` on, into the workspace."""
        activations = Activations(self.em, self.problem, self.schedule.arithmetic)
        activations.emit(pointers.x, first, rows, pointers.workspace)

    def _panel(self, pointers: BlocksPointers, first: Value, rows: int, number: Value, columns: int) -> None:
        @self.em.pieces(rows, self.schedule.tile_rows)
        def tile(start: Value, count: int) -> None:
            self._tile(pointers, first, start, count, number, columns)

    def _tile(
        self, pointers: BlocksPointers, first: Value, start: Value, count: int, number: Value, columns: int
    ) -> None:
        """A panel's products with `count` of the prepared rows from `start` on."""
        em, problem, schedule = self.em, self.problem, self.schedule
        panel = em.moved(pointers.panels, number, problem.parts * self._layout.part_bytes, "u8")
        step = problem.result.strides[-1]
        out = em.moved(pointers.result, number, schedule.lanes * step, "f32")
        x = em.moved(pointers.workspace, start, problem.parts * self._record, "u8")
        for row, total in enumerate(self._sums(panel, x, count)):
            at = em.b.add(em.b.add(first, start), em.index(row))
            address = row_address(em, out, problem.result, at)
            em.store_strided(total, address, step, "f32", schedule.lanes, columns)

    def _sums(self, panel: Value, x: Value, rows: int) -> list[Value]:
        """A vector of the sums over K for each row of x, a lane for each row of the panel."""
        em, lanes, parts = self.em, self.schedule.lanes, self.problem.parts

        def body(index: Value, sums: list[Value]) -> Sequence[Value]:
            part = em.moved(panel, index, self._layout.part_bytes, "u8")
            at = em.moved(x, index, self._record, "u8")
            records = [em.address(at, row * parts * self._record, "u8") for row in range(rows)]
            return self._part(part, records, sums)

        return em.loop(0, parts, 1, [em.const("f32", lanes, 0.0)] * rows, body)

    def _part(self, part: Value, records: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        """Adds what a part of the panel gives with the records of each row."""
        em, lanes, bits = self.em, self.schedule.lanes, self.problem.bits
        dots = (self._digit_sums if self.schedule.exact else self._plain_sums)(part, records)
        scale = em.load(em.address(part, self._layout.scales, "u8"), bits.scale.dtype, lanes)
        found: list[Value] = []
        minima = None
        if bits.minimum is not None:
            minima = em.load(em.address(part, self._layout.minima, "u8"), bits.minimum.dtype, lanes)
        for record, dot, total in zip(records, dots, sums, strict=True):
            factor = em.b.fmul(scale, self._number(record, SCALE_AT)) if self.schedule.exact else scale
            total = em.fma(dot, factor, total)
            if minima is not None:
                total = em.fma(minima, self._number(record, SUM_AT), total)
            found.append(total)
        return found

    def _number(self, record: Value, byte: int) -> Value:
        """An f32 of a record in every lane."""
        loaded = self.em.load(self.em.address(record, byte, "u8"), "f32", 1)
        return self.em.splat(loaded, self.schedule.lanes)

    # Codes.

    def _words(self, chunk: Value) -> list[Value]:
        """The words of codes of a chunk, a vector each."""
        em, lanes = self.em, self.schedule.lanes
        return [
            em.load(em.address(chunk, number * lanes, "i32"), "i32", lanes)
            for number in range(self._layout.words)
        ]

    def _field(self, words: Sequence[Value], group: int, unit: int) -> Value:
        """The codes of a unit of a group: of bytes `unit` and every so many more of its words."""
        layout = self._layout
        found = self._bits(words, group, unit, layout.low_bits, 0)
        if not layout.high_bits:
            return found
        high = self._bits(words[layout.low_words :], group, unit, layout.high_bits, layout.low_bits)
        return self.em.b.or_(found, high)

    def _bits(self, words: Sequence[Value], group: int, unit: int, width: int, to: int) -> Value:
        """`width` bits of each code of a unit, moved to bit `to`."""
        em, lanes = self.em, self.schedule.lanes
        number, place = divmod(group, 8 // width)
        word, down = words[number], width * place - to + 8 * unit
        if down > 0:
            word = em.b.lshr(word, em.const("i32", lanes, down))
        elif down < 0:
            word = em.b.shl(word, em.const("i32", lanes, -down))
        mask = (((1 << width) - 1) << to) * _ONES[self.schedule.arithmetic]
        return word if mask == _WHOLE else em.b.and_(word, em.const("i32", lanes, mask))

    # Sums of a part.

    def _digit_sums(self, part: Value, records: Sequence[Value]) -> list[Value]:
        """Exact sums of the products with each digit, and what they are together, in f32."""
        em, layout, arithmetic = self.em, self._layout, self.schedule.arithmetic
        digits, units = range(DIGITS[arithmetic]), _UNITS[arithmetic]
        size, add = DIGIT_BYTES[arithmetic], add_quads if arithmetic == "digits" else add_pairs

        def chunk(number: Value, sums: list[Value]) -> list[Value]:
            words = self._words(em.moved(part, number, layout.chunk_bytes, "u8"))
            elements = [em.moved(record, number, layout.chunk * size, "u8") for record in records]
            for group, unit in product(range(layout.groups), range(units)):
                codes = self._field(words, group, unit)
                column = GROUP * group + GROUP // units * unit
                for index, (row, digit) in enumerate(product(elements, digits)):
                    at = ELEMENTS_AT + (digit * self.problem.bits.part + column) * size
                    several = em.b.load(em.address(row, at, "u8"), align=4, typ=I32)
                    sums[index] = add(em, sums[index], codes, em.splat(several, self.schedule.lanes))
            return sums

        starts = [self._start(record, digit) for record in records for digit in digits]
        sums = em.loop(0, layout.chunks, 1, starts, chunk)
        return [self._joined(sums[first : first + len(digits)]) for first in range(0, len(sums), len(digits))]

    def _start(self, record: Value, digit: int) -> Value:
        """What the sums of a digit start from: codes are taken with their offset."""
        em, lanes = self.em, self.schedule.lanes
        if not self.problem.bits.offset:
            return em.const("i32", lanes, 0)
        at = em.address(record, OFFSETS_AT + 4 * digit, "u8")
        return em.splat(em.b.load(at, align=4, typ=I32), lanes)

    def _joined(self, sums: Sequence[Value]) -> Value:
        """The sums of all digits as one f32: those above the lowest fit an i32 together."""
        em, lanes = self.em, self.schedule.lanes
        low, *others, upper = sums
        for middle in others:
            upper = em.b.add(em.b.shl(upper, em.const("i32", lanes, 8)), middle)
        wide = em.type("f32", lanes)
        return em.fma(em.b.sitofp(upper, wide), em.const("f32", lanes, 256.0), em.b.sitofp(low, wide))

    def _plain_sums(self, part: Value, records: Sequence[Value]) -> list[Value]:
        """Sums of products in f32: of even and of odd columns, so that two additions are under way at a time."""
        em, layout = self.em, self._layout

        def chunk(number: Value, sums: list[Value]) -> list[Value]:
            columns = self._columns(em.moved(part, number, layout.chunk_bytes, "u8"))
            elements = [em.moved(record, number, layout.chunk, "f32") for record in records]
            for column, wide in enumerate(columns):
                for row, record in enumerate(elements):
                    index = 2 * row + column % 2
                    x = self._number(record, ELEMENTS_AT + 4 * column)
                    sums[index] = em.fma(wide, x, sums[index])
            return sums

        zeros = [em.const("f32", self.schedule.lanes, 0.0)] * (2 * len(records))
        sums = em.loop(0, layout.chunks, 1, zeros, chunk)
        totals = [em.b.fadd(sums[first], sums[first + 1]) for first in range(0, len(sums), 2)]
        if self.problem.bits.floats is None:
            return totals
        step = em.const("f32", self.schedule.lanes, _FLOAT_STEP)
        return [em.b.fmul(total, step) for total in totals]

    def _columns(self, chunk: Value) -> Iterator[Value]:
        """The values of the codes of each column of a chunk, in f32."""
        em, lanes, bits = self.em, self.schedule.lanes, self.problem.bits
        if bits.floats is not None:
            for column in range(0, self._layout.chunk, 2):
                yield from self._two_floats(em.address(chunk, column * lanes, "u8"))
            return
        words = self._words(chunk)
        for column in range(self._layout.chunk):
            code = self._field(words, *divmod(column, GROUP))
            if bits.offset:
                code = em.b.sub(code, em.const("i32", lanes, bits.offset))
            yield em.b.sitofp(code, em.type("f32", lanes))

    def _two_floats(self, address: Value) -> tuple[Value, Value]:
        """The f8E4M3FN of each row in two columns over `_FLOAT_STEP`, as f16 that have their bits; none is NaN."""
        em, lanes = self.em, self.schedule.lanes
        words = em.b.sext(em.load(address, "i8", 2 * lanes), ir.VectorType(I16, 2 * lanes))
        # The sign is in bits 14 and 15, and an f16 has it in bit 15.
        bits = em.b.and_(em.b.shl(words, em.const("i16", 2 * lanes, 7)), em.const("i16", 2 * lanes, ~0x4000))
        first, second = (em.reread(half, "i16", "f16", lanes) for half in em.halves(bits))
        return first, second
