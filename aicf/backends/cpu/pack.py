"""Code that lays a matrix out in panels for the GEMM microkernel: ``[ceil(columns / width)][k][width]``, zero padded.

Used ahead of time for weights (one packing kernel per weight, in ``@prepare``) and inside a GEMM for operands that
change.
"""

from __future__ import annotations

from aicf.backends.cpu.ir_builder import Emitter, Value


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
) -> None:
    """Pack all of a ``k x columns`` matrix with element strides `strides`."""
    full = columns // width

    def panel(index: Value, count: int) -> None:
        start = em.address(source, em.b.mul(index, em.index(width * strides[1])), dtype)
        out = em.address(target, em.b.mul(index, em.index(k * width)), dtype)
        emit_pack_panel(em, dtype, lanes, k, width, count, strides, start, out)

    def body(index: Value, _: list[Value]) -> list[Value]:
        panel(index, width)
        return []

    em.loop(0, full, 1, [], body)
    if full * width < columns:
        panel(em.index(full), columns - full * width)


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
) -> None:
    """Pack `columns` columns of all `k` rows at `source` into one ``[k][width]`` panel; the rest of it is zero."""
    if strides[1] == 1:
        _copy_rows(em, dtype, lanes, k, width, columns, strides[0], source, target)
        return
    block = lanes if strides[0] == 1 else 1
    rolled = k // block * block

    def body(row: Value, _: list[Value]) -> list[Value]:
        start = em.address(source, em.b.mul(row, em.index(strides[0])), dtype)
        out = em.address(target, em.b.mul(row, em.index(width)), dtype)
        if block > 1:
            _transpose_rows(em, dtype, lanes, width, columns, strides[1], start, out)
        else:
            _gather_row(em, dtype, width, columns, strides[1], start, out)
        return []

    em.loop(0, rolled, block, [], body)

    def rest(row: Value, _: list[Value]) -> list[Value]:
        start = em.address(source, em.b.mul(row, em.index(strides[0])), dtype)
        _gather_row(
            em,
            dtype,
            width,
            columns,
            strides[1],
            start,
            em.address(target, em.b.mul(row, em.index(width)), dtype),
        )
        return []

    em.loop(rolled, k, 1, [], rest)


def _copy_rows(
    em: Emitter,
    dtype: str,
    lanes: int,
    k: int,
    width: int,
    columns: int,
    stride: int,
    source: Value,
    target: Value,
) -> None:
    def body(row: Value, _: list[Value]) -> list[Value]:
        start = em.address(source, em.b.mul(row, em.index(stride)), dtype)
        out = em.address(target, em.b.mul(row, em.index(width)), dtype)
        for j in range(0, width, lanes):
            kept = min(lanes, width - j)
            value = (
                em.load(em.address(start, j, dtype), dtype, lanes, min(kept, columns - j))
                if j < columns
                else em.const(dtype, lanes, 0)
            )
            em.store(value, em.address(out, j, dtype), dtype, lanes, kept)
        return []

    em.loop(0, k, 1, [], body)


def _gather_row(
    em: Emitter, dtype: str, width: int, columns: int, stride: int, start: Value, out: Value
) -> None:
    for j in range(width):
        value = (
            em.load(em.address(start, j * stride, dtype), dtype, 1) if j < columns else em.const(dtype, 1, 0)
        )
        em.store(value, em.address(out, j, dtype), dtype, 1)


def _transpose_rows(
    em: Emitter, dtype: str, lanes: int, width: int, columns: int, stride: int, start: Value, out: Value
) -> None:
    """`lanes` rows at once: load along k, transpose in registers, store along the panel."""
    for j in range(0, width, lanes):
        kept = min(lanes, width - j)
        vectors = [
            em.load(em.address(start, (j + c) * stride, dtype), dtype, lanes)
            if c < kept and j + c < columns
            else em.const(dtype, lanes, 0)
            for c in range(lanes)
        ]
        for r, value in enumerate(em.transpose(vectors)):
            em.store(value, em.address(out, r * width + j, dtype), dtype, lanes, kept)
