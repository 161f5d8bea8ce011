"""`print-happens-before`: shows for each instruction what ends before it starts, and what is not ordered with it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects.emit import ProgramOp
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.print.printing import scheduled_programs, show
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class PrintHappensBeforePass(ModulePass):
    """Puts `aicf.print.happens_before` on each instruction: `before`, all instructions in the closure of its edges, and
    `unordered`, those that may run at the same time. Both in text order.
    """

    name = "print-happens-before"
    works_on = PROGRAMS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in scheduled_programs(op):
            _show(program)


def _show(program: ProgramOp) -> None:
    order = HappensBefore(program)
    for instruction in order.order:
        others = [other for other in order.order if other is not instruction]
        before = [other.instruction.data for other in others if order.before(other, instruction)]
        unordered = [other.instruction.data for other in others if not order.ordered(other, instruction)]
        show(instruction, "happens_before", {"before": before, "unordered": unordered})
