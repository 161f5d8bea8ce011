"""`print-cost`: shows the arithmetic and the memory traffic that each group and instruction takes at least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from aicf.dialects.emit import GroupOp, ResolvedOp, symbols
from aicf.errors import PlanError
from aicf.passes.analysis.work_done import WorkDone, work_done_by_group, work_done_by_instruction
from aicf.passes.bodies.workload import body_of
from aicf.passes.print.printing import show
from aicf.passes.support.works_on import GROUPS_AND_INSTRUCTIONS


@dataclass(frozen=True)
class PrintCostPass(ModulePass):
    """Puts `aicf.print.cost` on each group and instruction: scalar operations, and bytes read and written.

    The body says what is computed, so an instruction needs one.
    """

    name = "print-cost"
    works_on = GROUPS_AND_INSTRUCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        table = symbols(op)
        for inner in op.walk():
            if isinstance(inner, GroupOp):
                _show(inner, work_done_by_group(inner))
            elif isinstance(inner, ResolvedOp):
                _show(inner, _done_by(inner, table))


def _done_by(op: ResolvedOp, table: Mapping[str, Operation]) -> WorkDone:
    if (body := body_of(op, table)) is None:
        name = op.instruction.data
        raise PlanError(
            f"instruction '{name}' has no body that says what it computes; run select-kernels first"
        )
    return work_done_by_instruction(op, body.body.block)


def _show(op: Operation, done: WorkDone) -> None:
    read, written = done.bytes_read, done.bytes_written
    show(op, "cost", {"operations": done.operations, "bytes_read": read, "bytes_written": written})
