"""`check-budget`: the planned memory of every program against what it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf.dialects.emit import ProgramOp
from aicf.errors import PlanError
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS


class OverBudget(PlanError):
    """Arenas are larger than `budget` bytes: `taken`, by program."""

    def __init__(self, taken: Mapping[str, int], budget: int) -> None:
        listed = ", ".join(f"@{name} takes {arena}" for name, arena in taken.items())
        super().__init__(
            f"the memory budget is {budget} bytes and {listed}; have more computed again with "
            "eliminate-saves{less=BYTES}, or give more"
        )
        self.taken, self.budget = taken, budget


@dataclass(frozen=True)
class CheckBudgetPass(ModulePass):
    """Raises if the arena of a program takes more than `bytes`.

    The driver of a pipeline then goes back to `eliminate-saves`, a few times (`passes/pipelines/driver.py`).
    """

    name = "check-budget"
    works_on = PROGRAMS

    bytes: int

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        arenas = {program.sym_name.data: _arena(program) for program in programs(op)}
        if taken := {name: arena for name, arena in arenas.items() if arena > self.bytes}:
            raise OverBudget(taken, self.bytes)
        budget = {"budget_bytes": IntegerAttr(self.bytes, i64)}
        for name, arena in arenas.items():
            record_decision(
                op, self.name, [name], "within the budget", f"{arena} of {self.bytes} bytes", {}, budget
            )


def _arena(program: ProgramOp) -> int:
    if program.arena_bytes is None:
        raise PlanError(f"@{program.sym_name.data} has no memory plan yet; run plan-memory first")
    return program.arena_bytes.value.data
