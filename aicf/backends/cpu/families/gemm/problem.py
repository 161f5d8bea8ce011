"""Reads matrix products from their operands: the problem, where the epilogues read and write, and the row program.
No code generator.

Batch dims that only continue the rows (a shared B, contiguous rows) are taken into the rows, so that ``[batch, seq,
features]`` times a weight is one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

from aicf.backends.common.loop_nest import (
    Access,
    LoopNest,
    Strided,
    access_of,
    has_even_rows,
    index_ops,
    nest_of,
)
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.gemm.spec import GemmProblem
from aicf.backends.cpu.families.legality import (
    code_reason,
    strided,
)
from aicf.backends.cpu.families.records import get_bool
from aicf.backends.cpu.target import ACCUMULATORS, SHORT_INTEGERS
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.kinds import EPILOGUES

KINDS = ("gemm", *EPILOGUES, "gemm_gated", "gemm_multi", "norm_gemm", "norm_gated")
"""Kinds of instructions that multiply one left operand."""

_JOINED = ("gemm_gated", "norm_gated")
"""Kinds with two products and one epilogue over the sums of both."""


@dataclass(frozen=True)
class OperandRoles:
    """Which operand of an instruction is what.

    Args:
        rights: The B of each product.
        rows: What the row program before the products reads, x first; empty where operand 0 is A.
        extras: What each epilogue reads besides the sums.
    """

    rights: tuple[int, ...]
    rows: tuple[int, ...]
    extras: tuple[tuple[int, ...], ...]

    @property
    def accumulators(self) -> int:
        """Sums that one epilogue starts from."""
        return len(self.rights) // len(self.extras)


def operand_roles(kind: str, operands: int, results: int, prologue: KernelOp | None) -> OperandRoles:
    """The roles of an instruction's operands.

    Operand 0 is A, or x that the prologue makes A of; the right operands follow, then what else the prologue reads,
    then what each epilogue reads.
    """
    products = 2 if kind in _JOINED else results
    first = 1 + products
    inner = 0 if prologue is None else len(prologue.in_maps) - 1
    each = (operands - first - inner) // results
    starts = range(first + inner, operands - each + 1, each) if each else [operands] * results
    return OperandRoles(
        tuple(range(1, first)),
        () if prologue is None else (0, *range(first, first + inner)),
        tuple(tuple(range(start, start + each)) for start in starts),
    )


@dataclass(frozen=True)
class GemmWorkload:
    """Products of one left operand with the row program before them and the epilogues after them.

    Args:
        problem: Sizes and strides of A and B.
        batch_in_rows: How many batch dims became rows.
        roles: Which operand is what.
        accesses: For each epilogue those of its operands (without the sums), then of its outputs; strides per
            (batch..., row, column).
        rows: The row program that makes A, over all rows; None where A is an operand.
    """

    problem: GemmProblem
    batch_in_rows: int
    roles: OperandRoles
    accesses: tuple[tuple[Access, ...], ...]
    rows: LoopNest | None


def read_gemm(
    kind: str,
    operands: Sequence[Strided],
    results: Sequence[Strided],
    transposed: tuple[bool, bool],
    code: KernelOp | None,
    prologue: KernelOp | None,
    packed: bool = False,
) -> GemmWorkload:
    """The work of an instruction of one of `KINDS`.

    Args:
        kind: Its kind.
        operands, results: As the kind orders them; A is ``[batch..., rows, columns]``, B may have rank 2.
        transposed: Whether the last two dims of A, of B are swapped.
        code: The epilogue, None for a plain product.
        prologue: The row program, None where operand 0 is A.
        packed: B lies in packed panels, whose strides are of no use.
    """
    found = operand_roles(kind, len(operands), len(results), prologue)
    a, b = operands[0], operands[found.rights[0]]
    rows = None
    if prologue is not None:
        a = Strided(a.shape, contiguous(a.shape), ACCUMULATORS[b.dtype])
        given = (*(operands[index] for index in found.rows), a)
        rows = nest_of(prologue, [o.strides for o in given], [o.dtype for o in given])
    accesses = [
        _epilogue_accesses(code, found.accumulators, [operands[index] for index in own], outs)
        for own, outs in zip(found.extras, _per_epilogue(results, found), strict=True)
    ]
    flat = [access for own in accesses for access in own]
    problem, collapsed, steps = _collapse(a, b, transposed, flat, packed, _tells_rows_apart(code))
    moved = [Access(old.dtype, old.offset, tuple(new)) for old, new in zip(flat, steps, strict=True)]
    ends = list(accumulate(map(len, accesses)))
    starts = [0, *ends[:-1]]
    joined, makes_rows = found.accumulators > 1, rows is not None
    return GemmWorkload(
        replace(problem, products=len(found.rights), joined=joined, makes_rows=makes_rows),
        collapsed,
        found,
        tuple(tuple(moved[start:end]) for start, end in zip(starts, ends, strict=True)),
        rows,
    )


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of an array in row-major order."""
    sizes = [max(1, size) for size in reversed(shape[1:])]
    return tuple(reversed([1, *accumulate(sizes, mul)]))


def _per_epilogue(results: Sequence[Strided], found: OperandRoles) -> list[Sequence[Strided]]:
    """The results of each epilogue: one each, or all of them the only one's."""
    return [results] if len(found.extras) == 1 else [[result] for result in results]


def _epilogue_accesses(
    code: KernelOp | None, accumulators: int, operands: Sequence[Strided], outputs: Sequence[Strided]
) -> list[Access]:
    """Accesses over the dims of the product: of `operands` (epilogue only), then of `outputs`."""
    if code is None:
        return [Access(out.dtype, 0, out.strides) for out in outputs]
    maps = (*code.in_maps[accumulators:], *code.out_maps)
    return [access_of(m, o.strides, o.dtype) for m, o in zip(maps, (*operands, *outputs), strict=True)]


def _collapse(
    a: Strided,
    b: Strided,
    transposed: tuple[bool, bool],
    accesses: Sequence[Access],
    packed: bool,
    apart: bool,
) -> tuple[GemmProblem, int, list[list[int]]]:
    """The problem with as many batch dims as rows as there can be (none if `apart`), how many those are, and the new
    strides."""
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
    while batch and not apart and _continues_rows(batch[-1], m, row, a_batch[-1], b_batch[-1], steps):
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
    right = (0, 0) if packed else (b_strides[0], b_strides[1])
    a_steps = (row, a_strides[1])
    problem = GemmProblem(
        ACCUMULATORS[b.dtype],
        m,
        n,
        k,
        a_steps,
        right,
        tuple(batch),
        tuple(a_batch),
        tuple(b_batch),
        a_type=a.dtype,
        b_type=b.dtype,
    )
    return problem, collapsed, steps


def _tells_rows_apart(code: KernelOp | None) -> bool:
    """Whether an epilogue asks for the batch element or the row it is at, which rows made of batch dims have not."""
    if code is None:
        return False
    return any(op.number < len(code.parallel_sizes) - 1 for op in index_ops(code))


def _continues_rows(size: int, m: int, row: int, a_step: int, b_step: int, steps: list[list[int]]) -> bool:
    """Whether the innermost batch dim steps over exactly the rows, for every operand, and B is shared."""
    if size == 1 or (m == 1 and b_step == 0):
        return True
    return b_step == 0 and a_step == row * m and all(strides[-3] == strides[-2] * m for strides in steps)


def gemm_reason(work: Workload) -> str | None:
    """Why no kernel of this backend runs a product, with its epilogue; None if one does."""
    if work.operands[0].dtype == "i1":
        return "a matrix product of i1 has no meaning on cpu: cast to a number first"
    if work.kind == "gemm":
        return None if len(work.results) == 1 else "a plain product has one result"
    if work.kind in EPILOGUES and len(work.results) != 1:
        return "a product has several results"
    if work.code is None:
        return "what follows the product has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1:
        return "a reduction follows the product"
    return code_reason(work.code)


def products_reason(work: Workload) -> str | None:
    """Why the loop nest cannot run several products, or the row program before them; None if it can."""
    if work.kind in ("gemm", *EPILOGUES):
        return None
    if work.prologue is not None and (reason := code_reason(work.prologue)) is not None:
        return reason
    gemm = read_work(work)
    if 0 in (gemm.problem.m, gemm.problem.n, gemm.problem.k, *gemm.problem.batch):
        return "nothing to multiply"
    first = work.operands[gemm.roles.rights[0]]
    if any(work.operands[index].strides != first.strides for index in gemm.roles.rights):
        return "the right operands lie differently in memory"
    if any(own != gemm.accesses[0] for own in gemm.accesses):
        return "what the products read and write lies differently in memory for each"
    if gemm.rows is None:
        return None
    if first.dtype in SHORT_INTEGERS:
        return "its rows are of short integers, which are multiplied in pairs"
    if gemm.problem.batch:
        return "its rows feed a product for each batch element, not one product"
    return None if has_even_rows(gemm.rows) else "the rows do not follow each other evenly in memory"


def read_work(work: Workload) -> GemmWorkload:
    """The matrix products of a work."""
    operands = [strided(operand) for operand in work.operands]
    results = [strided(result) for result in work.results]
    transposed = (get_bool(work.attrs, "transpose_a"), get_bool(work.attrs, "transpose_b"))
    packed = work.operands[1].layout is not None
    return read_gemm(work.kind, operands, results, transposed, work.code, work.prologue, packed)
