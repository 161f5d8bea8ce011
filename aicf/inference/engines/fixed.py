"""An engine over one compiled model: the programs it holds, and no others. It never imports the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicf.inference.counting import Counts
from aicf.inference.engines.base import EngineProgram
from aicf.inference.interface import Bucket, Interface


class FixedEngine:
    """See `Engine`.

    Args:
        made: The compiled model.
    """

    makes_programs = False

    def __init__(self, made: EngineProgram) -> None:
        self._made = made
        executable, plan = made.executable, made.executable.plan
        self.model = executable.name
        self.name = f"{plan.backend}:{plan.arch}"
        self.threads = plan.threads
        outputs = Counts.read(plan.programs[0].graph).visible(executable.outputs)
        self.interface = Interface(executable.inputs, outputs, plan.dims)

    def ahead(self) -> EngineProgram:
        """See `Engine`."""
        return self._made

    def bucket_of(self, arguments: Sequence[Any]) -> Bucket:
        """See `Engine`; sizes that it has no program for are among those that do not fit."""
        return Bucket(tuple(self._made.executable.dims_of(*arguments).values()))

    def refusal(self, bucket: Bucket) -> str:
        """See `Engine`."""
        return "it is compiled already; compile the model for these sizes too"

    def make(self, bucket: Bucket) -> EngineProgram:
        """See `Engine`; never called, for `refusal` always has a reason."""
        raise AssertionError(self.refusal(bucket))
