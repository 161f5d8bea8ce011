"""`print-liveness`: shows when each slot is alive, with which others, and how much memory that takes at least."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects.emit import ProgramOp
from aicf.passes.analysis.accesses import accesses_by_root
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.analysis.liveness import Interference, interfering, lower_bound, slot_lifetimes
from aicf.passes.print.printing import root_names, scheduled_programs, show
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class PrintLivenessPass(ModulePass):
    """Puts `aicf.print.liveness` on each slot that is used: its number, its aligned bytes, the instructions that touch
    it first and last in text order, and the slots alive with it under happens-before. The program gets the bytes of
    all slots, and the lower bound of any placement.
    """

    name = "print-liveness"
    works_on = PROGRAMS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in scheduled_programs(op):
            _show(program)


def _show(program: ProgramOp) -> None:
    order, names = HappensBefore(program), root_names(program)
    lifetimes = slot_lifetimes(accesses_by_root(program), order)
    for life, others in zip(lifetimes, interfering(lifetimes, Interference(order)), strict=True):
        first, last = (order.order[position].instruction.data for position in (life.first, life.last))
        alive_with = [names[lifetimes[other].slot] for other in sorted(others)]
        slot = names[life.slot]
        result = {"slot": slot, "bytes": life.size, "first": first, "last": last, "alive_with": alive_with}
        show(life.slot, "liveness", result)
    total = sum(life.size for life in lifetimes)
    show(program, "liveness", {"bytes": total, "lower_bound_bytes": lower_bound(lifetimes, order)})
