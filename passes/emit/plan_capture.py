"""`plan-capture`: partitions a program into graphs that are captured once and replayed; then it is final."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf.dialects.emit import ProgramOp
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import spend
from aicf.passes.support.programs import advance, programs
from aicf.passes.support.works_on import until_phase


@dataclass(frozen=True)
class PlanCapturePass(ModulePass):
    """Puts all instructions of a program into one graph: nothing in it returns to the host. Reorders nothing.

    With that every program is final, and of the policies only what bounds results and memory stays in the module.
    """

    name = "plan-capture"
    works_on = until_phase("final")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        captured = [program for program in programs(op) if advance(program, "planned", "final")]
        for program in captured:
            _capture(op, program)
        if captured and all(program.phase.data == "final" for program in programs(op)):
            spend(op)


def _capture(module: ModuleOp, program: ProgramOp) -> None:
    names = [StringAttr(op.instruction.data) for op in program.instructions]
    program.properties["graphs"] = ArrayAttr([ArrayAttr(names)] if names else [])
    record_decision(
        module,
        PlanCapturePass.name,
        [program.sym_name.data],
        f"one graph of {len(names)} instructions" if names else "no graph",
        "no instruction needs the host between two others",
    )
