"""Walking the programs of a module, and moving one from phase to phase."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, StringAttr

from aicf.dialects.emit import PHASES, ProgramOp
from aicf.errors import PlanError


def programs(module: ModuleOp) -> Iterator[ProgramOp]:
    """All programs of `module` in text order."""
    for op in list(module.body.block.ops):
        if isinstance(op, ProgramOp):
            yield op


def advance(program: ProgramOp, from_phase: str, to_phase: str) -> bool:
    """Moves `program` on; False if it is already there or further.

    Raises PlanError if it has not reached `from_phase`: a pass is missing in between.
    """
    here = program.phase_index
    if here >= PHASES.index(to_phase):
        return False
    if here < PHASES.index(from_phase):
        raise PlanError(
            f"program @{program.sym_name.data} is {program.phase.data}, and the pass that makes it {to_phase} "
            f"needs {from_phase}; run the passes in order"
        )
    program.properties["phase"] = StringAttr(to_phase)
    return True
