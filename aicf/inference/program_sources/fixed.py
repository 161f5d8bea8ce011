"""The programs of one compiled model, and no others. Never imports the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicf.engines.interface import Bucket, Interface
from aicf.inference.counting import Counts
from aicf.inference.program_sources.base import SourcedProgram


class FixedPrograms:
    """See `ProgramSource`.

    Args:
        made: The compiled model.
    """

    makes_programs = False

    def __init__(self, made: SourcedProgram) -> None:
        self._made = made
        executable, plan = made.executable, made.executable.plan
        self.model = executable.name
        self.name = f"{plan.backend}:{plan.arch}"
        self.threads = plan.threads
        outputs = Counts.read(plan.programs[0].graph).visible(executable.outputs)
        self.interface = Interface(executable.inputs, outputs, plan.dims)

    def ahead(self) -> SourcedProgram:
        """See `ProgramSource`."""
        return self._made

    def bucket_of(self, arguments: Sequence[Any]) -> Bucket:
        """See `ProgramSource`; sizes that it has no program for are among those that do not fit."""
        return Bucket(tuple(self._made.executable.dims_of(*arguments).values()))

    def refusal(self, bucket: Bucket) -> str:
        """See `ProgramSource`."""
        return "it is compiled already; compile the model for these sizes too"

    def make(self, bucket: Bucket) -> SourcedProgram:
        """See `ProgramSource`; never called, for `refusal` always has a reason."""
        raise AssertionError(self.refusal(bucket))
