"""A compiled program read back from its artifact or its emit IR file, and its decisions as a policy.

For tools that look at what was decided (`aicf policy extract`, `aicf diff`). Nothing is compiled, and no weights and no
device are needed; what the decisions were based on is the ledger's affair (`explain`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from aicf.compilation.reading import options_of
from aicf.compilation.record import EMIT, Options
from aicf.compilation.sources import read_model
from aicf.errors import ArtifactError, InputMismatch
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.read_decisions import decisions_of
from aicf.policies.policy import Policy
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.plan_from_ir import read_module
from aicf.saving import artifact
from aicf.support.arguments import path_from


@dataclass(frozen=True)
class SavedProgram:
    """A compiled program.

    Args:
        path: The file it was read from.
        module: Its final emit IR.
        plan: The same as plain data.
        options: What the passes were told; None for a file of emit IR, which does not say.
    """

    path: str
    module: ModuleOp
    plan: ModulePlan
    options: Options | None

    @property
    def policy(self) -> Policy:
        """The policy that pins every decision: applied to the same logical IR, it gives the same program."""
        return decisions_of(self.module)


def read_saved_program(path: str | Path) -> SavedProgram:
    """Reads an artifact, or an `.mlir` file of final emit IR.

    Raises:
        ArtifactError: the file is no artifact, damaged, edited, or of a newer format.
        InvalidIR: the text does not parse or verify.
        InputMismatch: it is no compiled program.
        PlanError: something in it is undecided; every blocker is listed.
    """
    path = path_from(path, ArtifactError, "the path of a compiled program")
    name = str(path)
    if path.suffix == ".mlir":
        source = read_model(name, make_context())
        if not source.is_emit:
            raise InputMismatch(f"{name} is no compiled program but logical IR; run aicf compile first")
        return SavedProgram(name, source.module, read_module(source.module), None)
    file = artifact.read(path)
    module = parse_module(file.text(EMIT), f"{name}:{EMIT}")
    return SavedProgram(name, module, read_module(module), options_of(file))
