"""Where the programs of a session run: device, kernels, memory and sizes, in a few lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from aicf.compiled import CompiledModel
from aicf.explain import lower_bound_of
from aicf.runtime.capture_plan import CapturePlan


@dataclass(frozen=True)
class Placed:
    """One program.

    Args:
        name: Its symbol.
        engine: The target that runs all of its instructions.
        kernels: How many instructions each kernel runs, most first.
        arena, lower_bound: Bytes of its intermediates, and the least that any placement of them takes (None: unknown).
        staged: Inputs and outputs that are copied through memory of the program.
    """

    name: str
    engine: str
    kernels: dict[str, int]
    arena: int
    lower_bound: int | None
    staged: tuple[str, ...]

    def __str__(self) -> str:
        total = sum(self.kernels.values())
        kernels = ", ".join(f"{count} {kernel}" for kernel, count in self.kernels.items())
        listed = f" ({kernels})" if kernels else ""
        least = "" if self.lower_bound is None else f" (lower bound {self.lower_bound:,})"
        staged = f", copied: {', '.join(self.staged)}" if self.staged else ""
        return (
            f"@{self.name}: {total} instruction{'s' if total != 1 else ''} on {self.engine}{listed}, "
            f"arena {self.arena:,} bytes{least}{staged}"
        )


@dataclass(frozen=True)
class Placement:
    """A session's programs; `str()` is plain text.

    Args:
        model: Name of the model.
        engine: The target.
        threads: That run each program together.
        inputs, outputs: In words.
        shapes: For which sizes there are programs, and what becomes of others, in words.
        weights: Bytes of the weights.
        programs: Those that are there.
    """

    model: str
    engine: str
    threads: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: str
    weights: int
    programs: tuple[Placed, ...]

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        head = f"{self.model} on {self.engine}{threads}: {self.shapes}"
        boundary = f"  {', '.join(self.inputs) or 'no input'} -> {', '.join(self.outputs) or 'no output'}"
        lines = [head, boundary, *(f"  {program}" for program in self.programs)]
        return "\n".join([*lines, *([f"  weights: {self.weights:,} bytes"] if self.weights else [])])


def placed(executable: CompiledModel, plan: CapturePlan) -> Placed:
    """Where one program of `executable` runs."""
    return Placed(
        plan.name,
        f"{executable.plan.backend}:{executable.plan.arch}",
        dict(Counter(launch.kernel for launch in plan.launches).most_common()),
        plan.arena_bytes,
        lower_bound_of(plan.name, executable.decisions),
        tuple(bind.name for bind in plan.graph.binds if bind.binding == "staged"),
    )
