"""Code that lays a matrix of i8 out in quads along K, for products that multiply four terms of K at once.

A quad is four neighbouring terms of a column, the first in the low bits; where K ends with a part of one, zeros follow.
A panel holds quads as that of other products holds elements. If the left factor is read with a shift, a panel starts
with what this adds to the sums of each column, negative.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.dot_products import add_quads
from aicf.backends.cpu.codegen.ir_builder import I32, Emitter, Value, ir
from aicf.backends.cpu.families.gemm.pack.template import Packer

_ONES = 0x01010101
"""Four u8 of 1."""


@dataclass(frozen=True)
class QuadPacker:
    """As `Packer`, into panels of quads.

    Args:
        lanes: Quads of a vector, of which a panel has a whole number.
        k: Terms.
        width: Columns of a panel.
        strides: Of the matrix, in elements.
        shift: What each term of the left factor is read with too much.
    """

    em: Emitter
    lanes: int
    k: int
    width: int
    strides: tuple[int, int]
    shift: int

    @property
    def units(self) -> int:
        """Rows of a panel that hold terms."""
        return -(-self.k // 4)

    @property
    def rows(self) -> int:
        """Rows of a panel."""
        return self.units + (self.shift != 0)

    def matrix(self, columns: int, source: Value, target: Value) -> None:
        """Packs all of a matrix with so many columns."""
        em = self.em

        @em.panels(columns, self.width)
        def panel(index: Value, count: int) -> None:
            start = em.moved(source, index, self.width * self.strides[1], "i8")
            self.panel(count, start, em.moved(target, index, self.rows * self.width, "i32"))

    def panel(self, columns: int, source: Value, target: Value) -> None:
        """Packs `columns` columns of all rows at `source` into one panel; the rest of it is zero."""
        em, (row_step, step) = self.em, self.strides
        terms = em.address(target, self.width if self.shift else 0, "i32")
        if row_step == 1 and step % 4 == 0 and self.k % 4 == 0:
            # Quads lie in the matrix as they do in the panel.
            Packer(em, "i32", "i32", self.lanes, self.units, self.width, (1, step // 4)).panel(
                columns, source, terms
            )
        else:
            self._rows(columns, source, terms)
        if self.shift:
            pack_starts(em, self.lanes, self.width, self.units, self.shift, terms, target)

    def _rows(self, columns: int, source: Value, terms: Value) -> None:
        em = self.em
        whole, rest = divmod(self.k, 4)

        @em.each(0, whole)
        def row(number: Value) -> None:
            start = em.moved(source, number, 4 * self.strides[0], "i8")
            self._row(columns, start, em.moved(terms, number, self.width, "i32"), 4)

        if rest:
            start = em.address(source, 4 * whole * self.strides[0], "i8")
            self._row(columns, start, em.address(terms, whole * self.width, "i32"), rest)

    def _row(self, columns: int, start: Value, out: Value, count: int) -> None:
        """A row of quads of the first `count` terms, zeros where those end."""
        em, lanes, (row_step, step) = self.em, self.lanes, self.strides
        wide = ir.VectorType(I32, lanes)
        for j in range(0, self.width, lanes):
            quad = em.const("i32", lanes, 0)
            active = min(lanes, columns - j)
            for term in range(count if active > 0 else 0):
                at = em.address(start, term * row_step + j * step, "i8")
                value = em.b.zext(em.load_strided(at, step, "i8", lanes, active), wide)
                quad = em.b.or_(quad, em.b.shl(value, em.const("i32", lanes, 8 * term)))
            em.store(quad, em.address(out, j, "i32"), "i32", lanes)


def pack_starts(
    em: Emitter, lanes: int, width: int, units: int, shift: int, terms: Value, out: Value
) -> None:
    """Writes at `out` the `width` i32 that a panel starts with: what `shift` adds to the sums of columns, negative.

    `terms` are the `units` rows of quads of the panel.
    """
    ones, columns = em.const("i32", lanes, _ONES), range(0, width, lanes)

    def add(k: Value, sums: list[Value]) -> list[Value]:
        row = em.moved(terms, k, width, "i32")
        quads = [em.load(em.address(row, j, "i32"), "i32", lanes) for j in columns]
        return [add_quads(em, own, ones, quad) for own, quad in zip(sums, quads, strict=True)]

    zeros = [em.const("i32", lanes, 0) for _ in columns]
    for j, own in zip(columns, em.loop(0, units, 1, zeros, add), strict=True):
        value = em.b.mul(own, em.const("i32", lanes, -shift))
        em.store(value, em.address(out, j, "i32"), "i32", lanes)
