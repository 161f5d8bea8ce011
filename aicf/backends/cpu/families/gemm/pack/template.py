"""Code that lays a matrix out in panels for the GEMM microkernel: ``[ceil(columns / width)][k][width]``, zero padded.

Used ahead of time for weights (one packing kernel per weight, in ``@prepare``) and inside a GEMM for operands that
change. Panels may hold a wider element type than the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert


def emit_pack(
    em: Emitter,
    dtype: str,
    lanes: int,
    k: int,
    columns: int,
    width: int,
    strides: tuple[int, int],
    source: Value,
    target: Value,
    into: str,
) -> None:
    """Pack all of a ``k x columns`` matrix of `dtype` with element strides `strides` into panels of type `into`."""

    @em.panels(columns, width)
    def panel(index: Value, count: int) -> None:
        start = em.address(source, em.b.mul(index, em.index(width * strides[1])), dtype)
        out = em.address(target, em.b.mul(index, em.index(k * width)), into)
        emit_pack_panel(em, dtype, lanes, k, width, count, strides, start, out, into)


def emit_pack_panel(
    em: Emitter,
    dtype: str,
    lanes: int,
    k: int,
    width: int,
    columns: int,
    strides: tuple[int, int],
    source: Value,
    target: Value,
    into: str,
) -> None:
    """Pack `columns` columns of all `k` rows at `source` into one ``[k][width]`` panel; the rest of it is zero."""
    move = _Move(em, dtype, into)
    if strides[1] == 1:
        _copy_rows(move, lanes, k, width, columns, strides[0], source, target)
        return
    block = lanes if strides[0] == 1 else 1
    rolled = k // block * block

    @em.each(0, rolled, block)
    def body(row: Value) -> None:
        start = em.address(source, em.b.mul(row, em.index(strides[0])), dtype)
        out = em.address(target, em.b.mul(row, em.index(width)), into)
        if block > 1:
            _transpose_rows(move, lanes, width, columns, strides[1], start, out)
        else:
            _gather_row(move, width, columns, strides[1], start, out)

    @em.each(rolled, k)
    def rest(row: Value) -> None:
        start = em.address(source, em.b.mul(row, em.index(strides[0])), dtype)
        out = em.address(target, em.b.mul(row, em.index(width)), into)
        _gather_row(move, width, columns, strides[1], start, out)


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
    move = _Move(em, matrix.dtype, into)
    row_step, step = matrix.strides

    @em.each(*bounds)
    def row(number: Value) -> None:
        start = em.moved(source, number, row_step, matrix.dtype)
        out = em.moved(target, number, matrix.k, into)

        @em.pieces(matrix.k, lanes)
        def vector(at: Value, active: int) -> None:
            value = move.load(em.moved(start, at, step, matrix.dtype), step, lanes, active)
            em.store(value, em.address(out, at, into), into, lanes, active)


@dataclass(frozen=True)
class _Move:
    """Elements on their way from memory of one type to memory of another that holds all of its numbers."""

    em: Emitter
    source: str
    target: str

    def load(self, address: Value, stride: int, lanes: int, active: int | None = None) -> Value:
        """Elements as registers of the target; lanes from `active` on are zero."""
        loaded = self.em.load_strided(address, stride, self.source, lanes, active)
        return convert(Scalars(self.em, lanes), loaded, self.source, self.target)


def _copy_rows(
    move: _Move,
    lanes: int,
    k: int,
    width: int,
    columns: int,
    stride: int,
    source: Value,
    target: Value,
) -> None:
    em, dtype, into = move.em, move.source, move.target

    @em.each(0, k)
    def body(row: Value) -> None:
        start = em.address(source, em.b.mul(row, em.index(stride)), dtype)
        out = em.address(target, em.b.mul(row, em.index(width)), into)
        for j in range(0, width, lanes):
            kept = min(lanes, width - j)
            value = (
                move.load(em.address(start, j, dtype), 1, lanes, min(kept, columns - j))
                if j < columns
                else em.const(into, lanes, 0)
            )
            em.store(value, em.address(out, j, into), into, lanes, kept)


def _gather_row(move: _Move, width: int, columns: int, stride: int, start: Value, out: Value) -> None:
    em, into = move.em, move.target
    for j in range(width):
        address = em.address(start, j * stride, move.source)
        value = move.load(address, 1, 1) if j < columns else em.const(into, 1, 0)
        em.store(value, em.address(out, j, into), into, 1)


def _transpose_rows(
    move: _Move, lanes: int, width: int, columns: int, stride: int, start: Value, out: Value
) -> None:
    """`lanes` rows at once: load along k, transpose in registers, store along the panel."""
    em, into = move.em, move.target
    for j in range(0, width, lanes):
        kept = min(lanes, width - j)
        vectors = [
            move.load(em.address(start, (j + c) * stride, move.source), 1, lanes)
            if c < kept and j + c < columns
            else em.const(into, lanes, 0)
            for c in range(lanes)
        ]
        for r, value in enumerate(em.transpose(vectors)):
            em.store(value, em.address(out, r * width + j, into), into, lanes, kept)
