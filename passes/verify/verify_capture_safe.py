"""`verify-capture-safe`: a final program can be captured once and replayed, with nothing left to decide."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects.emit import BINDINGS, ProgramOp
from aicf.errors import CaptureError
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class VerifyCaptureSafePass(ModulePass):
    """Lists every blocker of every program with its fix, in one CaptureError.

    A program is final; each instruction has a kernel record and a body and stands in exactly one graph, in text
    order; each bind of the caller says whether its address is used directly or staged.
    """

    name = "verify-capture-safe"
    works_on = PROGRAMS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        blockers = [blocker for program in programs(op) for blocker in _blockers(program)]
        if blockers:
            raise CaptureError("not capture-safe: " + "; ".join(blockers))


def _blockers(program: ProgramOp) -> list[str]:
    name = program.sym_name.data
    if program.phase.data != "final":
        return [f"@{name} is {program.phase.data}, not final: run the passes up to plan-capture"]
    blockers: list[str] = []
    for op in program.instructions:
        label = f"'{op.instruction.data}' of @{name}"
        if op.kernel is None:
            blockers.append(f"{label} has no kernel record: run select-kernels")
        if op.body is None:
            blockers.append(f"{label} has no body: give it one, or a kind whose body is known")
    for bind in program.binds:
        if bind.role.data in ("input", "output") and (
            bind.binding is None or bind.binding.data not in BINDINGS
        ):
            blockers.append(
                f"{bind.role.data} '{bind.bind_name.data}' of @{name} has no binding: add binding(direct)"
            )
    if _graph_names(program) != [op.instruction.data for op in program.instructions]:
        blockers.append(
            f"the graphs of @{name} are not its instructions in text order: run plan-capture again"
        )
    return blockers


def _graph_names(program: ProgramOp) -> list[str]:
    return [] if program.graphs is None else [name.data for graph in program.graphs for name in graph]
