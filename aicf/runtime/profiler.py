"""Time per instruction, joined to the source ops it stands for.

The program is run one instruction at a time: on the host through the code's profile entry, on a device as a graph of
its own with events between the instructions; the time of an empty call or gap is taken off. Sums are therefore close
to, not equal to, the time of a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter_ns
from typing import Any

from aicf.errors import CaptureError
from aicf.runtime.executable import Executable
from aicf.runtime.graph_exec import GraphExec, check_runs


@dataclass(frozen=True)
class InstructionTime:
    """One instruction, with the source ops it stands for; its median and its fastest time."""

    name: str
    kind: str
    src: tuple[str, ...]
    kernel: str
    median_us: float
    best_us: float


Workload = Mapping[str, Mapping[str, float]]
"""Instruction to source op to how much of the instruction's work it is, in any unit."""


@dataclass(frozen=True, repr=False)
class Profile:
    """Times of the instructions of one program in launch order, and the median of whole replays; `str()` is a table.

    Args:
        work: Says what each source op is of an instruction; called when times are shared.
    """

    program: str
    instructions: tuple[InstructionTime, ...]
    replay_us: float
    work: Callable[[], Workload] = field(default=dict[str, Mapping[str, float]], compare=False)

    @property
    def total_us(self) -> float:
        """The sum of the medians of all instructions."""
        return sum(instruction.median_us for instruction in self.instructions)

    def by_source(self) -> dict[str, float]:
        """Median microseconds by source op, largest first; they add up to :attr:`total_us`.

        The time of an instruction that stands for several ops is shared among them by their scalar operations, which
        is an attribution and no measurement: what a fused op takes cannot be told from what it is fused with. Where
        nothing is known of their work, they have equal parts. An instruction without source ops has its own name.
        """
        shared = any(len(instruction.src) > 1 for instruction in self.instructions)
        work: Workload = self.work() if shared else {}
        totals: dict[str, float] = {}
        for instruction in self.instructions:
            for source, share in _shares(instruction, work.get(instruction.name, {})).items():
                totals[source] = totals.get(source, 0.0) + share * instruction.median_us
        return dict(sorted(totals.items(), key=lambda entry: -entry[1]))

    def __str__(self) -> str:
        total = self.total_us
        lines = [
            f"@{self.program}: replay {self.replay_us:.2f} us, instructions {total:.2f} us",
            "  median us    best us  share  instruction",
        ]
        lines += [
            f"  {row.median_us:9.3f}  {row.best_us:9.3f}  {row.median_us / total if total else 0:5.1%}  "
            f"{row.name} {row.kind} by {row.kernel}{_some(row.src)}"
            for row in self.instructions
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<Profile of @{self.program}: {len(self.instructions)} instructions, replay {self.replay_us:.2f} us; "
            "print() shows them>"
        )


_MOST_SOURCES = 4


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_SOURCES
    listed = ", ".join(names[:_MOST_SOURCES]) + (f" and {more} more" if more > 0 else "")
    return f" for {listed}" if listed else ""


def _shares(instruction: InstructionTime, work: Mapping[str, float]) -> dict[str, float]:
    """The part of an instruction that each of its source ops is; they add up to 1."""
    parts = {source: work.get(source, 0.0) for source in instruction.src or (instruction.name,)}
    whole = sum(parts.values())
    return {source: part / whole if whole else 1 / len(parts) for source, part in parts.items()}


class Profiler:
    """Measures an executable on a fresh instance of it, so that its state is left alone."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable

    def measure(self, *args: Any, repeats: int = 100) -> Profile:
        """Runs the program `repeats` times instruction by instruction, and as often whole.

        Args:
            args: Inputs in order.

        Raises:
            InputMismatch: the inputs do not fit.
            CaptureError: the code has no profile entry.
        """
        check_runs(repeats)
        executable = self._executable
        graph_exec = executable.instantiate(**executable.dims_of(*args))
        for spec, value in zip(executable.inputs, args, strict=True):
            graph_exec.fill({spec.name: value})
        samples = graph_exec.instruction_times(repeats)
        if samples is None:
            raise CaptureError(
                f"code of backend '{executable.plan.backend}' runs whole programs only; time replay() instead"
            )
        empty = median(row[0] for row in samples)
        _microseconds(graph_exec)  # the first run may go instruction by instruction
        whole = median(_microseconds(graph_exec) for _ in range(repeats))
        plan = graph_exec.plan
        rows: list[InstructionTime] = []
        for number, (node, launch) in enumerate(zip(plan.graph.nodes, plan.launches, strict=True), 1):
            times = [row[number] for row in samples]
            middle, best = max(median(times) - empty, 0.0), max(min(times) - empty, 0.0)
            rows.append(InstructionTime(node.name, node.kind, node.src, launch.kernel, middle, best))
        return Profile(plan.name, tuple(rows), whole, executable.work_by_source)


def _microseconds(graph_exec: GraphExec) -> float:
    """Of one replay, from the call to its end."""
    start = perf_counter_ns()
    graph_exec.replay()
    graph_exec.synchronize()
    return (perf_counter_ns() - start) / 1e3
