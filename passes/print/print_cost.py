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
from aicf.passes.analysis.cost import Cost, cost_of_group, cost_of_instruction
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
                _show(inner, cost_of_group(inner))
            elif isinstance(inner, ResolvedOp):
                _show(inner, _cost(inner, table))


def _cost(op: ResolvedOp, table: Mapping[str, Operation]) -> Cost:
    if (body := body_of(op, table)) is None:
        name = op.instruction.data
        raise PlanError(
            f"instruction '{name}' has no body that says what it computes; run select-kernels first"
        )
    return cost_of_instruction(op, body.body.block)


def _show(op: Operation, cost: Cost) -> None:
    read, written = cost.bytes_read, cost.bytes_written
    show(op, "cost", {"operations": cost.operations, "bytes_read": read, "bytes_written": written})
