"""Code that lays a matrix out in panels for the GEMM microkernel: ``[ceil(columns / width)][k][width]``, zero padded.

Used ahead of time for weights (one packing kernel per weight, in ``@prepare``) and inside a GEMM for operands that
change. Panels may hold a wider element type than the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert


@dataclass(frozen=True)
class Packer:
    """Lays a matrix with `k` rows out in panels of `width` columns.

    Args:
        source, target: Element types of the matrix and of the panels, which holds all numbers of the other.
        strides: Of the matrix, in elements.
    """

    em: Emitter
    source: str
    target: str
    lanes: int
    k: int
    width: int
    strides: tuple[int, int]

    def matrix(self, columns: int, source: Value, target: Value) -> None:
        """Packs all of a matrix with so many columns."""
        em = self.em

        @em.panels(columns, self.width)
        def panel(index: Value, count: int) -> None:
            start = em.address(source, em.b.mul(index, em.index(self.width * self.strides[1])), self.source)
            out = em.address(target, em.b.mul(index, em.index(self.k * self.width)), self.target)
            self.panel(count, start, out)

    def panel(self, columns: int, source: Value, target: Value) -> None:
        """Packs `columns` columns of all rows at `source` into one panel; the rest of it is zero."""
        em, (row_step, step) = self.em, self.strides

        def rows(first: int, end: int, block: int, pack: Callable[[int, Value, Value], None]) -> None:
            @em.each(first, end, block)
            def body(row: Value) -> None:
                start = em.address(source, em.b.mul(row, em.index(row_step)), self.source)
                pack(columns, start, em.address(target, em.b.mul(row, em.index(self.width)), self.target))

        if step == 1:
            rows(0, self.k, 1, self._copied)
            return
        block = self.lanes if row_step == 1 else 1
        rolled = self.k // block * block
        rows(0, rolled, block, self._transposed if block > 1 else self._gathered)
        rows(rolled, self.k, 1, self._gathered)

    def _copied(self, columns: int, start: Value, out: Value) -> None:
        """One row, whose elements are neighbours."""
        em, lanes = self.em, self.lanes
        for j in range(0, self.width, lanes):
            kept = min(lanes, self.width - j)
            value = (
                self._load(em.address(start, j, self.source), lanes, min(kept, columns - j))
                if j < columns
                else self._zero(lanes)
            )
            em.store(value, em.address(out, j, self.target), self.target, lanes, kept)

    def _gathered(self, columns: int, start: Value, out: Value) -> None:
        """One row, element by element."""
        for j in range(self.width):
            address = self.em.address(start, j * self.strides[1], self.source)
            value = self._load(address, 1) if j < columns else self._zero(1)
            self.em.store(value, self.em.address(out, j, self.target), self.target, 1)

    def _transposed(self, columns: int, start: Value, out: Value) -> None:
        """`lanes` rows at once: load along k, transpose in registers, store along the panel."""
        em, lanes, width = self.em, self.lanes, self.width
        for j in range(0, width, lanes):
            kept = min(lanes, width - j)
            vectors = [
                self._load(em.address(start, (j + c) * self.strides[1], self.source), lanes)
                if c < kept and j + c < columns
                else self._zero(lanes)
                for c in range(lanes)
            ]
            for r, value in enumerate(em.transpose(vectors)):
                em.store(value, em.address(out, r * width + j, self.target), self.target, lanes, kept)

    def _load(self, address: Value, lanes: int, active: int | None = None) -> Value:
        return _widened(self.em, address, 1, (self.source, self.target), lanes, active)

    def _zero(self, lanes: int) -> Value:
        return self.em.const(self.target, lanes, 0)


@dataclass(frozen=True)
class Rows:
    """A matrix in memory: element type, strides and the elements of a row."""

    dtype: str
    strides: tuple[int, int]
    k: int


def emit_widened_rows(
    em: Emitter,
    matrix: Rows,
    lanes: int,
    source: Value,
    target: Value,
    bounds: tuple[Value, Value],
    into: str,
) -> None:
    """Copies the rows in the half-open range `bounds`, contiguous in type `into`."""
    types = matrix.dtype, into
    row_step, step = matrix.strides

    @em.each(*bounds)
    def row(number: Value) -> None:
        start = em.moved(source, number, row_step, matrix.dtype)
        out = em.moved(target, number, matrix.k, into)

        @em.pieces(matrix.k, lanes)
        def vector(at: Value, active: int) -> None:
            value = _widened(em, em.moved(start, at, step, matrix.dtype), step, types, lanes, active)
            em.store(value, em.address(out, at, into), into, lanes, active)


def _widened(
    em: Emitter, address: Value, stride: int, types: tuple[str, str], lanes: int, active: int | None
) -> Value:
    """Elements of the first type as registers of the second; lanes from `active` on are zero."""
    loaded = em.load_strided(address, stride, types[0], lanes, active)
    return convert(Scalars(em, lanes), loaded, *types)
