"""Where the programs of a session run: device, kernels, memory and sizes, in a few lines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placed:
    """One program.

    Args:
        name: Its symbol.
        target: What runs all of its instructions.
        kernels: How many instructions each kernel runs, most first.
        arena, lower_bound: Bytes of its intermediates, and the least that any placement of them takes (None: unknown).
        staged: Inputs and outputs that are copied through memory of the program.
    """

    name: str
    target: str
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
            f"@{self.name}: {total} instruction{'s' if total != 1 else ''} on {self.target}{listed}, "
            f"arena {self.arena:,} bytes{least}{staged}"
        )


@dataclass(frozen=True)
class Placement:
    """A session's programs; `str()` is plain text.

    Args:
        model: Name of the model.
        target: What runs them, as in `cpu:x86-64-v4`.
        threads: That run each program together.
        inputs, outputs: In words.
        shapes: For which sizes there are programs, and what becomes of others, in words.
        weights: Bytes of the weights; 0 if the engine does not tell.
        programs: Those that are there; of an engine that decides inside, none.
        notes: More that is known of the engine, line by line.
    """

    model: str
    target: str
    threads: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: str
    weights: int
    programs: tuple[Placed, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        head = f"{self.model} on {self.target}{threads}: {self.shapes}"
        boundary = f"  {', '.join(self.inputs) or 'no input'} -> {', '.join(self.outputs) or 'no output'}"
        lines = [head, boundary, *(f"  {program}" for program in self.programs)]
        lines += [f"  weights: {self.weights:,} bytes"] if self.weights else []
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
