"""How the parts of a gradient are added: which thread adds what. Plain data; no code generator."""

from __future__ import annotations

from math import ceil

from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.records import Triple
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch

THREADS = 128
"""Of a block."""
_BUSY = 32768
"""Threads that keep a GPU busy: with fewer vectors, each thread takes one sum."""
_START_US = 2.0
"""One more launch."""
_ROUND_US = 0.35
"""For as many parts as a thread has under way at a time."""
_SECTOR_BYTES = 32
"""Of L2, which a store of single elements writes a part of."""
AT_ONCE = 8
"""Parts that a thread loads before it adds them."""


def vector(problem: WeightGradProblem, columns: int) -> int:
    """Neighbouring columns of a thread. A chunk of columns holds whole vectors, or is one column."""
    most = PIECE_BYTES // ELEMENT_BYTES[problem.sums]
    return most if _sums(problem, columns) // most >= _BUSY and problem.windows.channels > 1 else 1


def grid(problem: WeightGradProblem, columns: int) -> Triple:
    """Blocks."""
    return ceil(_sums(problem, columns) // vector(problem, columns) / THREADS), 1, 1


def sum_us(problem: WeightGradProblem, columns: int, parts: int, arch: GpuArch) -> float:
    """Predicted microseconds: parts are in L2, where the product has just written them."""
    moved = problem.parts_bytes(columns, parts)
    if problem.windows.weight_strides[1] != 1 and problem.windows.channels > 1:
        moved += _SECTOR_BYTES * _sums(problem, columns)
    return _START_US + max(moved / (arch.copy_l2_gbs * 1e3), _ROUND_US * ceil(parts / AT_ONCE))


def _sums(problem: WeightGradProblem, columns: int) -> int:
    return problem.groups * problem.outputs * columns
