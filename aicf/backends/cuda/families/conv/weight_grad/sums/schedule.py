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
_MOST_SHARERS = 16
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


def sharers(problem: WeightGradProblem, columns: int, parts: int) -> int:
    """Threads that share the parts of a vector, where these are many and vectors few."""
    vectors = _sums(problem, columns) // vector(problem, columns)
    shared = 1
    while shared < _MOST_SHARERS and 2 * shared * AT_ONCE < parts and 2 * shared * vectors <= _BUSY:
        shared *= 2
    return shared


def grid(problem: WeightGradProblem, columns: int, parts: int) -> Triple:
    """Blocks."""
    vectors = _sums(problem, columns) // vector(problem, columns)
    return ceil(vectors * sharers(problem, columns, parts) / THREADS), 1, 1


def order_text(problem: WeightGradProblem, columns: int, parts: int) -> str:
    """How the parts of a sum are added, for the record."""
    if (shared := sharers(problem, columns, parts)) == 1:
        return f"{parts} parts of K, added in ascending order"
    return f"{parts} parts of K in {shared} runs, each added in ascending order, and so are these"


def sum_us(problem: WeightGradProblem, columns: int, parts: int, arch: GpuArch) -> float:
    """Predicted microseconds: parts are in L2, where the product has just written them."""
    moved = problem.parts_bytes(columns, parts)
    if problem.windows.weight_strides[1] != 1 and problem.windows.channels > 1:
        moved += _SECTOR_BYTES * _sums(problem, columns)
    rounds = ceil(parts / (AT_ONCE * sharers(problem, columns, parts)))
    return _START_US + max(moved / (arch.copy_l2_gbs * 1e3), _ROUND_US * rounds)


def _sums(problem: WeightGradProblem, columns: int) -> int:
    return problem.groups * problem.outputs * columns
