"""Code that lays short integers out in pairs along K, for products that multiply two terms of K at once.

A pair is a *unit*: the first term in the low bits, the second in the high ones; where K ends with half a pair the
second term is zero. Panels of B hold units as those of other products hold elements, and so do the rows of A.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I8, I16, Emitter, Value, ir
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert, resized
from aicf.backends.cpu.families.gemm.pack.template import Rows

_BITS = {"i16": 16, "i8": 8, "u8": 8}


@dataclass(frozen=True)
class Pairs:
    """The terms of a matrix B, and how they become units.

    Args:
        source: Element type in memory.
        element: Element type of a term of a unit: i16, or the source's own.
        k: Terms.
        apart: Rows of B between the two terms of a pair: K is `apart` rows for the first terms, as many for the second
            ones, and so on. A multiple of it.
    """

    source: str
    element: str
    k: int
    apart: int

    @property
    def unit(self) -> str:
        """An element type of the bytes of a unit."""
        return "i32" if self.element == "i16" else "i16"

    @property
    def units(self) -> int:
        """Rows of a panel."""
        return -(-self.k // (2 * self.apart)) * self.apart


@dataclass(frozen=True)
class PairPacker:
    """As `Packer`, into panels of units.

    Args:
        lanes: Units of a vector.
        width: Columns of a panel.
        strides: Of the matrix, in elements.
    """

    em: Emitter
    pairs: Pairs
    lanes: int
    width: int
    strides: tuple[int, int]

    def matrix(self, columns: int, source: Value, target: Value) -> None:
        """Packs all of a matrix with so many columns."""
        em, pairs = self.em, self.pairs

        @em.panels(columns, self.width)
        def panel(index: Value, count: int) -> None:
            start = em.moved(source, index, self.width * self.strides[1], pairs.source)
            self.panel(count, start, em.moved(target, index, pairs.units * self.width, pairs.unit))

    def panel(self, columns: int, source: Value, target: Value) -> None:
        """Packs `columns` columns of all rows at `source` into one panel; the rest of it is zero."""
        em, pairs, row_step = self.em, self.pairs, self.strides[0]
        groups, half = divmod(pairs.k // pairs.apart, 2)

        def group(number: Value, whole: bool) -> None:
            first = em.moved(source, number, 2 * pairs.apart * row_step, pairs.source)
            out = em.moved(target, number, pairs.apart * self.width, pairs.unit)

            @em.each(0, pairs.apart)
            def body(element: Value) -> None:
                start = em.moved(first, element, row_step, pairs.source)
                self._row(columns, start, em.moved(out, element, self.width, pairs.unit), whole)

        em.each(0, groups)(lambda number: group(number, True))
        if half:
            group(em.index(groups), False)

    def _row(self, columns: int, start: Value, out: Value, whole: bool) -> None:
        """A row of units, whose second terms are zeros if it is not whole."""
        em, pairs, lanes = self.em, self.pairs, self.lanes
        for j in range(0, self.width, lanes):
            at = em.address(start, j * self.strides[1], pairs.source)
            active = min(lanes, columns - j)
            second = em.address(at, pairs.apart * self.strides[0], pairs.source) if whole else None
            unit = self._unit(at, second, active) if active > 0 else em.const(pairs.unit, lanes, 0)
            em.store(unit, em.address(out, j, pairs.unit), pairs.unit, lanes, min(lanes, self.width - j))

    def _unit(self, first: Value, second: Value | None, active: int) -> Value:
        """A vector of units of neighbouring columns, with `active` lanes that exist."""
        low, high = (
            None
            if at is None
            else self.em.load_strided(at, self.strides[1], self.pairs.source, self.lanes, active)
            for at in (first, second)
        )
        return joined(Scalars(self.em, self.lanes), self.pairs.source, self.pairs.element, low, high)


def joined(scalars: Scalars, source: str, element: str, low: Value, high: Value | None) -> Value:
    """Units of two vectors of terms of type `source`, the second zero if it is absent."""
    em, lanes = scalars.em, scalars.lanes
    bits, unit = _BITS[element], "i32" if element == "i16" else "i16"
    first = em.b.and_(convert(scalars, low, source, unit), em.const(unit, lanes, (1 << bits) - 1))
    if high is None:
        return first
    return em.b.or_(first, em.b.shl(convert(scalars, high, source, unit), em.const(unit, lanes, bits)))


def widened_pairs(scalars: Scalars, units: Value, element: str) -> Value:
    """Units of `element` as units of i16."""
    em, lanes = scalars.em, scalars.lanes
    if element == "i16":
        return units
    terms = em.b.bitcast(units, ir.VectorType(I8, 2 * lanes))
    wide = resized(em, terms, ir.VectorType(I16, 2 * lanes), signed=element == "i8")
    return em.b.bitcast(wide, em.type("i32", lanes))


def emit_rows_of_pairs(
    em: Emitter, matrix: Rows, lanes: int, source: Value, target: Value, bounds: tuple[Value, Value]
) -> None:
    """Copies the rows of A in the half-open range `bounds`, contiguous in i16, each padded to whole pairs."""
    row_step, step = matrix.strides
    pitch = -(-matrix.k // 2) * 2
    lanes *= 2  # of 16 bits, where the sums have 32

    @em.each(*bounds)
    def row(number: Value) -> None:
        start = em.moved(source, number, row_step, matrix.dtype)
        out = em.moved(target, number, pitch, "i16")

        @em.pieces(matrix.k, lanes)
        def vector(at: Value, active: int) -> None:
            loaded = em.load_strided(
                em.moved(start, at, step, matrix.dtype), step, matrix.dtype, lanes, active
            )
            value = convert(Scalars(em, lanes), loaded, matrix.dtype, "i16")
            # Lanes past the last element are zero: the second term of half a pair is one of them.
            em.store(value, em.address(out, at, "i16"), "i16", lanes, min(lanes, active + active % 2))
