"""Time per instruction, joined to the source ops it stands for.

The program is run one instruction at a time through the code's profile entry; the time of an empty call is
taken off. Sums are therefore close to, not equal to, the time of a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

from aicf.errors import CaptureError
from aicf.runtime.executable import Executable
from aicf.runtime.threads import team_of


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
        executable = self._executable
        graph_exec = executable.instantiate(**executable.dims_of(*args))
        for spec, value in zip(executable.inputs, args, strict=True):
            graph_exec.bind({spec.name: np.ascontiguousarray(value)})
        plan, threads = graph_exec.plan, executable.plan.threads
        calls = graph_exec.profile_calls()
        if calls is None:
            raise CaptureError(
                f"code of backend '{executable.plan.backend}' runs whole programs only; time replay() instead"
            )
        runs = [call[0] if threads == 1 else partial(team_of(threads).run, call) for call in calls]
        samples = [[_nanoseconds(run) for run in runs] for _ in range(repeats)]
        empty = median(row[0] for row in samples)
        whole = median(_nanoseconds(graph_exec.replay) for _ in range(repeats))
        rows: list[InstructionTime] = []
        for number, (node, launch) in enumerate(zip(plan.graph.nodes, plan.launches, strict=True), 1):
            times = [row[number] for row in samples]
            middle, best = _over(median(times), empty), _over(min(times), empty)
            rows.append(InstructionTime(node.name, node.kind, node.src, launch.kernel, middle, best))
        return Profile(plan.name, tuple(rows), whole / 1e3)


def _nanoseconds(run: Callable[[], None]) -> int:
    start = perf_counter_ns()
    run()
    return perf_counter_ns() - start


def _over(nanoseconds: float, empty: float) -> float:
    return max(nanoseconds - empty, 0.0) / 1e3
