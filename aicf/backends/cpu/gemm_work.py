"""Reads a matrix product from its operands: the problem, and where the epilogue reads and writes. No code generator.

Batch dims that only continue the rows (a shared B, contiguous rows) are taken into the rows, so that ``[batch, seq,
features]`` times a weight is one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.gemm_spec import GemmProblem
from aicf.backends.nests import Access, Strided, access_of
from aicf.dialects.emit_kernels import KernelOp


@dataclass(frozen=True)
class GemmWork:
    """A product with its epilogue.

    Args:
        problem: Sizes and strides of A and B.
        batch_in_rows: How many batch dims became rows.
        accesses: Of epilogue operands (without the accumulator), then of outputs; strides per (batch..., row, column).
    """

    problem: GemmProblem
    batch_in_rows: int
    accesses: tuple[Access, ...]


def epilogue_accesses(
    code: KernelOp | None, operands: Sequence[Strided], outputs: Sequence[Strided]
) -> list[Access]:
    """Accesses over the dims of the product: of `operands` (epilogue only), then of `outputs`."""
    if code is None:
        return [Access(out.dtype, 0, out.strides) for out in outputs]
    maps = (*code.in_maps[1:], *code.out_maps)
    return [access_of(m, o.strides, o.dtype) for m, o in zip(maps, (*operands, *outputs), strict=True)]


def read_gemm(
    a: Strided,
    b: Strided,
    transposed: tuple[bool, bool],
    accesses: Sequence[Access],
    packed_panel: int | None = None,
) -> GemmWork:
    """The work of ``a @ b``.

    Args:
        a, b: Operands, ``[batch..., rows, columns]``; `b` may have rank 2.
        transposed: Whether the last two dims of `a`, of `b` are swapped.
        accesses: As `epilogue_accesses` gives them.
        packed_panel: Unused strides of B are left out if it lies in packed panels.
    """
    m, k = a.shape[-2:][:: -1 if transposed[0] else 1]
    n = b.shape[-2:][:: -1 if transposed[1] else 1][1]
    a_strides = a.strides[-2:][:: -1 if transposed[0] else 1]
    b_strides = b.strides[-2:][:: -1 if transposed[1] else 1]
    batch = list(a.shape[:-2])
    a_batch = list(a.strides[:-2])
    b_batch = list(b.strides[:-2]) if len(b.shape) > 2 else [0] * len(batch)
    steps = [list(access.strides) for access in accesses]
    collapsed = 0
    row = a_strides[0]
    while batch and _continues_rows(batch[-1], m, row, a_batch[-1], b_batch[-1], steps):
        size = batch.pop()
        a_step = a_batch.pop()
        b_batch.pop()
        if m == 1:
            row = a_step
        for strides in steps:
            kept = strides.pop(len(strides) - 3)
            if m == 1:
                strides[-2] = kept
        m *= size
        collapsed += 1
    problem = GemmProblem(
        a.dtype,
        m,
        n,
        k,
        (row, a_strides[1]),
        (0, 0) if packed_panel is not None else (b_strides[0], b_strides[1]),
        tuple(batch),
        tuple(a_batch),
        tuple(b_batch),
    )
    found = (
        Access(old.dtype, old.offset, tuple(strides)) for old, strides in zip(accesses, steps, strict=True)
    )
    return GemmWork(problem, collapsed, tuple(found))


def _continues_rows(size: int, m: int, row: int, a_step: int, b_step: int, steps: list[list[int]]) -> bool:
    """Whether the innermost batch dim steps over exactly the rows, for every operand, and B is shared."""
    if size == 1 or (m == 1 and b_step == 0):
        return True
    return b_step == 0 and a_step == row * m and all(strides[-3] == strides[-2] * m for strides in steps)
