"""Reports on a training step: its programs, and who computed their gradients."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.compilation.compiled import CompiledModel
from aicf.pytorch.report import instruction_count
from aicf.pytorch.training.gradients import GradientChoice


@dataclass(frozen=True)
class StepProgramReport:
    """One program of a step.

    Args:
        batch: Element types and shapes of the tensors that it takes.
        gradients: Who computed its gradients, and why.
        seconds: For compiling or loading it.
        origin: Whether it was compiled or loaded, in words.
        executable: The compiled program, with `explain()` and `ir()`.
    """

    batch: str
    gradients: GradientChoice
    seconds: float
    origin: str
    executable: CompiledModel

    def __str__(self) -> str:
        count = instruction_count(self.executable)
        compiled = f"{count} instructions, {self.origin} in {self.seconds:.2f} s"
        return f"{self.executable.name} of {self.batch}: {compiled}; {self.gradients}"


@dataclass(frozen=True)
class StepReport:
    """The programs of a step.

    Args:
        name: The class of the model.
        steps: So far, as the optimizer counts.
        programs: One for each signature of a batch.
    """

    name: str
    steps: int
    programs: tuple[StepProgramReport, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.steps} steps, {len(self.programs)} programs"]
        return "\n  ".join([*lines, *map(str, self.programs)])
