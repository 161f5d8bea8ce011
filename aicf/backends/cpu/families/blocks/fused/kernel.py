"""The kernel of products with block-quantised weights that take rows and epilogues along. No code generator is imported
here."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import has_even_rows, one_row
from aicf.backends.common.packed_weights import block_weight_reason, narrow_reason
from aicf.backends.common.record import Record, RecordCodec, illegal, integer, read_part
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.blocks.fused.problem import FusedProblem, read_fused
from aicf.backends.cpu.families.blocks.fused.schedule import FusedSchedule, choose, fused_bytes, fused_us
from aicf.backends.cpu.families.blocks.pack.kernel import PackedBlocksKernel, panels
from aicf.backends.cpu.families.blocks.problem import PanelLayout
from aicf.backends.cpu.families.blocks.schedule import BlocksSchedule, schedule_reason
from aicf.backends.cpu.families.legality import (
    code_reason,
    level_of,
    may_alias,
    strided,
    threads_of,
    threads_reason,
)
from aicf.backends.cpu.families.records import loop_record, loop_spec, rounding_record
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import PACKED_PRODUCTS

_CODEC = RecordCodec(BlocksSchedule)


class FusedBlocksKernel(PackedBlocksKernel[FusedSchedule]):
    """As `cpu.matmul_blocks`, of one weight or two of one shape: each thread makes the rows that it prepares, and sums
    become results before they leave registers."""

    id = "cpu.matmul_blocks_fused"
    kinds = frozenset({PACKED_PRODUCTS})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: weights in one piece, rows of one batch element, and one result."""
        if len(work.results) != 1:
            return "products with packed weights have one result here"
        if work.code is None:
            return "what follows the product has no generated code"
        if work.code.reduce_sizes or len(work.code.phases) != 1:
            return "a reduction follows the product"
        for code in (work.code, work.prologue):
            if code is not None and (reason := code_reason(code)) is not None:
                return reason
        if (reason := narrow_reason(work)) is not None:
            return reason
        problem = _problem(work)
        reasons = (block_weight_reason(work.operands[index]) for index in problem.rights)
        return next(filter(None, reasons), None) or _rows_reason(problem)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        assert work.code is not None, "legal work has an epilogue, which may do nothing"
        return fused_us(_problem(work), self.schedule(work, target), work.code)

    def schedule(self, work: Workload, target: TargetAttr) -> FusedSchedule:
        level, threads = level_of(target), threads_of(target)
        return choose(_problem(work), level, threads, fixed=work.batch_invariant, rounding=work.rounding)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> FusedSchedule:
        problem, product = _problem(work), _CODEC.read(record)
        if problem.rows is None:
            return FusedSchedule(product)
        return FusedSchedule(product, loop_spec(read_part(record, "rows"), one_row(problem.rows).nest))

    def record_of(self, work: Workload, target: TargetAttr, schedule: FusedSchedule) -> dict[str, Attribute]:
        problem, product = _problem(work), schedule.product
        panel = panels(PanelLayout(problem.product.scheme, product.lanes), work.operands[1].shape)
        layouts = [panel if index in problem.rights else UnitAttr() for index in range(len(work.operands))]
        entries: dict[str, Attribute] = {
            **_CODEC.entries(product),
            "scheme": work.attrs["scheme"],
            "products": work.attrs["products"],
            "workspace_bytes": integer(product.threads * fused_bytes(problem, product)),
            "combination_order": StringAttr(product.combination_order),
            "layouts": ArrayAttr(layouts),
            **rounding_record(work.code, work.rounding),
        }
        if problem.rows is not None and schedule.rows is not None:
            entries["rows"] = DictionaryAttr(loop_record(schedule.rows, one_row(problem.rows).nest))
        elif work.code is not None:
            # Each thread reads all rows, so nothing is written over what they are made of.
            sums = len(problem.rights)
            dtypes = [*sums * ["f32"], *(work.operands[index].dtype for index in problem.extras)]
            entries["may_alias"] = may_alias(work.code, dtypes, [work.results[0].dtype], sums)
        return entries

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: FusedSchedule) -> str | None:
        if schedule.rows is not None and schedule.rows.threads != 1:
            return f"in its 'rows', its {illegal('threads', schedule.rows.threads, 1)}"
        product, level = schedule.product, level_of(target)
        reason = schedule_reason(_problem(work).product, product, level)
        return reason or threads_reason(product.threads, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: parts in order, whatever the tile; the row program keeps the order of its own loops."""
        rows, schedule = _problem(work).rows, self.schedule(work, target)
        order = schedule.product.combination_order
        if rows is None or schedule.rows is None:
            return order
        return f"{order}; rows {schedule.rows.combination_order(one_row(rows).nest)}"


def _problem(work: Workload) -> FusedProblem:
    assert work.code is not None
    operands = [strided(operand) for operand in work.operands]
    return read_fused(operands, strided(work.results[0]), work.attrs, work.code, work.prologue)


def _rows_reason(problem: FusedProblem) -> str | None:
    if prod(problem.product.x.shape[:-2]) != 1:
        return "its rows are of several batch elements: reshape x to a matrix"
    if 0 in (problem.product.m, problem.product.n):
        return "nothing to multiply"
    if problem.rows is not None and not has_even_rows(problem.rows):
        return "the rows do not follow each other evenly in memory"
    return None


KERNELS = (FusedBlocksKernel(),)
"""The kernel of this family."""
