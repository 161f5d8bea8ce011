"""`check-budget`: the planned memory of every program against what it may take."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf.dialects.emit import ProgramOp
from aicf.errors import PlanError
from aicf.passes.support.ledger import record
from aicf.passes.support.programs import programs


class OverBudget(PlanError):
    """The arena of `program` is `taken` bytes, and may be `budget`."""

    def __init__(self, program: str, taken: int, budget: int) -> None:
        super().__init__(
            f"@{program} takes {taken} bytes and the memory budget is {budget}; have more computed again with "
            "eliminate-saves{less=BYTES}, or give more"
        )
        self.program, self.taken, self.budget = program, taken, budget

    @property
    def excess(self) -> int:
        """Bytes beyond the budget."""
        return self.taken - self.budget


@dataclass(frozen=True)
class CheckBudgetPass(ModulePass):
    """Raises if the arena of a program takes more than `bytes`.

    The driver of a pipeline then goes back to `eliminate-saves`, a few times (`support/driver`).
    """

    name = "check-budget"

    bytes: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op):
            name, arena = program.sym_name.data, _arena(program)
            if arena > self.bytes:
                raise OverBudget(name, arena, self.bytes)
            budget = {"budget_bytes": IntegerAttr(self.bytes, i64)}
            record(op, self.name, [name], "within the budget", f"{arena} of {self.bytes} bytes", {}, budget)


def _arena(program: ProgramOp) -> int:
    if program.arena_bytes is None:
        raise PlanError(f"@{program.sym_name.data} has no memory plan yet; run plan-memory first")
    return program.arena_bytes.value.data
