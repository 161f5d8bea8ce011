"""Every decision about products with packed weights and what is before and after them, with a cost prior. Imports no
code generator.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.common.loop_nest import one_row
from aicf.backends.cpu.families.blocks import schedule as blocks
from aicf.backends.cpu.families.blocks.fused.problem import FusedProblem
from aicf.backends.cpu.families.blocks.schedule import BlocksSchedule, thread_bytes
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE, NOMINAL_GHZ
from aicf.backends.cpu.families.loops.schedule import LoopSpec, cost_us, point_cycles
from aicf.backends.cpu.families.loops.schedule import choose as choose_loops
from aicf.backends.cpu.target import CpuLevel
from aicf.dialects.emit_kernels import KernelOp


@dataclass(frozen=True)
class FusedSchedule:
    """The schedule of the products, and of the row program before them at one row, if there is one."""

    product: BlocksSchedule
    rows: LoopSpec | None = None


def choose(
    problem: FusedProblem, level: CpuLevel, threads: int, *, fixed: bool, rounding: str
) -> FusedSchedule:
    """The schedule that is predicted to take least.

    Args:
        fixed: Whether the order of sums may not follow from the number of rows.
        rounding: As the policy has it.
    """
    product = blocks.choose(problem.whole, level, threads)
    if problem.rows is None:
        return FusedSchedule(product)
    return FusedSchedule(product, choose_loops(one_row(problem.rows).nest, level, 1, fixed, rounding))


def rows_bytes(problem: FusedProblem, schedule: BlocksSchedule) -> int:
    """Bytes of workspace of a thread for the rows of a chunk, in whole cache lines."""
    if problem.rows is None:
        return 0
    rows = min(problem.product.m, schedule.chunk_rows)
    return -(-4 * rows * problem.product.k // CACHE_LINE) * CACHE_LINE


def fused_bytes(problem: FusedProblem, schedule: BlocksSchedule) -> int:
    """Bytes of workspace of a thread: rows, and what is prepared of them."""
    prepared = thread_bytes(problem.product, schedule)
    return rows_bytes(problem, schedule) + -(-prepared // CACHE_LINE) * CACHE_LINE


def fused_us(problem: FusedProblem, schedule: FusedSchedule, code: KernelOp) -> float:
    """Predicted microseconds: the products, the rows, which each thread makes, and a thread's share of the epilogue."""
    product = problem.product
    vectors = product.m * -(-product.n // schedule.product.lanes)
    epilogue = vectors * point_cycles(code) / schedule.product.threads / NOMINAL_GHZ / 1000
    rows = 0.0
    if problem.rows is not None and schedule.rows is not None:
        rows = product.m * cost_us(one_row(problem.rows).nest, schedule.rows)
    return blocks.cost_us(problem.whole, schedule.product) + rows + epilogue
