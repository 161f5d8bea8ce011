"""What the named pipelines have in common: a pass that runs others, up to the one that is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.errors import PolicyError
from aicf.passes.pipelines.collector import collector_paused
from aicf.passes.pipelines.driver import drive
from aicf.passes.pipelines.text import suggest


@dataclass(frozen=True)
class NamedPipeline(ModulePass, ABC):
    """A pass that runs others in order, and decides nothing itself."""

    until: str = field(default="", kw_only=True)
    """The pass to stop after, the last of its name; empty runs all."""

    @abstractmethod
    def passes(self) -> tuple[ModulePass, ...]:
        """All passes in order, with the options handed on."""

    def steps(self) -> tuple[ModulePass, ...]:
        """The passes that run: those of :meth:`passes`, up to `until`.

        Raises PolicyError if none is called so.
        """
        passes = self.passes()
        if not self.until:
            return passes
        names = [step.name for step in passes]
        if self.until not in names:
            raise PolicyError(
                f"until: {self.name} has no pass '{self.until}'; {suggest(self.until, dict.fromkeys(names))}"
            )
        return passes[: len(names) - names[::-1].index(self.until)]

    def run_each(self, module: ModuleOp, apply: Callable[[ModulePass], None]) -> None:
        """Runs the steps on `module`, each by `apply`, see `drive`."""
        with collector_paused():
            drive(self.steps(), module, apply)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.run_each(op, lambda step: step.apply(ctx, op))
