"""What became of a training step: its programs, and whose gradients they have."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.compiled import CompiledModel
from aicf.pytorch.step_gradients import GradientChoice


@dataclass(frozen=True)
class ProgramReport:
    """One program of a step.

    Args:
        batch: The tensors that it is for, by element type and shape.
        gradients: Who took its gradients, and why.
        seconds: That making it took.
        origin: Whether it was compiled or loaded, in words.
        executable: It, with `explain()` and `ir()`.
    """

    batch: str
    gradients: GradientChoice
    seconds: float
    origin: str
    executable: CompiledModel

    def __str__(self) -> str:
        count = sum(len(each.launches) for each in self.executable.plan.programs)
        made = f"{count} instructions, {self.origin} in {self.seconds:.2f} s"
        return f"{self.executable.name} of {self.batch}: {made}; {self.gradients}"


@dataclass(frozen=True)
class StepReport:
    """What became of a step.

    Args:
        name: The class of the model.
        steps: So far, as the optimizer counts.
        programs: One for each form of a batch.
    """

    name: str
    steps: int
    programs: tuple[ProgramReport, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.steps} steps, {len(self.programs)} programs"]
        return "\n  ".join([*lines, *map(str, self.programs)])
