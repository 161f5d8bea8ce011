"""What of a module a pass works on, and what to say where there is nothing of it.

A pass states it as its class attribute `works_on`. It is no condition: passes run on any module and leave alone what is
not theirs, so that a pipeline needs no cases. A user who names one pass on the wrong program would learn nothing from
that, which is what `nothing_to_do` is for; `aicf-opt` prints it as a remark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from aicf.dialects.emit import PHASES, ProgramOp
from aicf.passes.support.programs import programs

FINAL = PHASES[-1]

IS_FINAL = "the program is final, every decision in it is made"
"""What is said of a module that only runs, to whoever wants to change it."""


@dataclass(frozen=True)
class WorksOn:
    """What a pass reads, changes or checks.

    Args:
        ops: Names of operations; one of them is enough. None works on any module.
        before: A phase; in programs that have reached it the pass has nothing left to do.
    """

    ops: tuple[str, ...] = ()
    before: str | None = None


ANYTHING = WorksOn()
MODELS = WorksOn(("func.func", "onnx.graph"))
FUNCTIONS = WorksOn(("func.func",))
GROUPS = WorksOn(("emit.group",))
GROUPS_AND_INSTRUCTIONS = WorksOn(("emit.group", "emit.resolved"))
PROGRAMS = WorksOn(("emit.program",))


def until_phase(phase: str, *ops: str) -> WorksOn:
    """Operations of these names, and emit programs that have not reached `phase`."""
    return WorksOn((*ops, "emit.program"), phase)


def nothing_to_do(module_pass: ModulePass, module: ModuleOp) -> str | None:
    """Why a pass finds nothing to do in a module, in one line with the way out; None if there is something."""
    works_on = getattr(module_pass, "works_on", ANYTHING)
    assert isinstance(works_on, WorksOn)
    found = _contents(module)
    if not works_on.ops or any(_is_open(op, works_on) for name in works_on.ops for op in found.get(name, ())):
        return None
    if is_final(module):
        return f"{IS_FINAL}; raise-emit gives back the functions that passes change"
    if any(name in found for name in works_on.ops):
        return f"all programs of the module are {works_on.before} already"
    return (
        f"it works on {' or '.join(works_on.ops)}, and the module has none{_way_out(works_on.ops[0], found)}"
    )


def is_final(module: ModuleOp) -> bool:
    """Whether a module has programs, all of them final, and no function that would become one."""
    phases = {program.phase.data for program in programs(module)}
    return phases == {FINAL} and not any(op.name in MODELS.ops for op in module.body.block.ops)


def _contents(module: ModuleOp) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for op in module.walk():
        found.setdefault(op.name, []).append(op)
    return found


def _is_open(op: Operation, works_on: WorksOn) -> bool:
    if works_on.before is None or not isinstance(op, ProgramOp):
        return True
    return op.phase_index < PHASES.index(works_on.before)


def _way_out(name: str, found: Mapping[str, Sequence[Operation]]) -> str:
    """Which passes make operations called `name` of what is there, if any do."""
    match name:
        case "func.func" if "onnx.graph" in found:
            passes = "specialize-shapes,lower-onnx"
        case "func.func" if "emit.program" in found:
            passes = "raise-emit"
        case "emit.group" if "func.func" in found:
            passes = "materialize-views,fuse-elementwise"
        case "emit.program" if "func.func" in found:
            passes = "the passes up to lower-to-emit"
        case _:
            return ""
    return f"; run {passes} first"
