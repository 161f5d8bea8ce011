"""A compiled program as a report reads it: from an artifact, or from an `.mlir` file of final emit IR."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aicf.compilation.reading import read_record
from aicf.compilation.record import Options, Record
from aicf.compilation.saved_program import SavedProgram, read_saved_program
from aicf.compilation.stages import print_module, read_decisions
from aicf.runtime.capture_plan import ModulePlan


@dataclass(frozen=True)
class Opened:
    """A compiled program.

    Args:
        saved: Its emit IR.
        record: What it knows of its making.
        plan: What runs.
    """

    saved: SavedProgram
    record: Record
    plan: ModulePlan

    @property
    def path(self) -> str:
        """The file, as it was given."""
        return self.saved.path


def open_program(path: str | Path) -> Opened:
    """Reads a compiled program; needs neither its weights nor the device that it is for. Raises as
    `read_saved_program`."""
    saved = read_saved_program(path)
    if saved.options is not None:
        return Opened(saved, *read_record(path))
    name, nothing = Path(path).stem, Options("", "", "", 1)
    emit = print_module(saved.module)
    return Opened(saved, Record(name, nothing, None, emit, read_decisions(saved.module), {}), saved.plan)
