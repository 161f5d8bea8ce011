"""Time per instruction, joined to the source ops it stands for.

The program is run one instruction at a time: on the host through the code's profile entry, on a device as a graph of
its own with events between the instructions; the time of an empty call or gap is taken off. Sums are therefore close
to, not equal to, the time of a replay.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Profile:
    """Times of the instructions of one program in launch order, and the median of whole replays."""

    program: str
    instructions: tuple[InstructionTime, ...]
    replay_us: float

    def by_source(self) -> dict[str, float]:
        """Median microseconds by source op, largest first; each op of an instruction gets its whole time."""
        totals: dict[str, float] = {}
        for instruction in self.instructions:
            for source in instruction.src:
                totals[source] = totals.get(source, 0.0) + instruction.median_us
        return dict(sorted(totals.items(), key=lambda entry: -entry[1]))


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
        return Profile(plan.name, tuple(rows), whole)


def _microseconds(graph_exec: GraphExec) -> float:
    """Of one replay, from the call to its end."""
    start = perf_counter_ns()
    graph_exec.replay()
    graph_exec.synchronize()
    return (perf_counter_ns() - start) / 1e3
