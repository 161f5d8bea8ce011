"""What ran when: each instruction on each thread of the processor, or on the device, beside the ops that it stands for.

A trace is made for a viewer of Chrome traces, such as Perfetto. Instructions run one at a time, as in
`aicf.Profiler`, so the sum of their times is close to the time of a replay, which the trace shows as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from aicf.errors import ArtifactError, CaptureError
from aicf.inspection.explain import Explanation, InstructionRow
from aicf.runtime.executable import Executable
from aicf.runtime.graph_exec import GraphExec, Span, check_runs
from aicf.support.files import write_whole

_INSTRUCTIONS, _REPLAYS = 1, 2
"""What viewers show as processes: the instructions by thread, and whole replays."""


@dataclass(frozen=True)
class Trace:
    """One program over time.

    Args:
        program: Its name.
        target: What it is compiled for.
        instructions: In launch order.
        locations: Where ops of the model are written, `file:line:col` by id, as far as that is known.
        method: How the spans were recorded, in words.
        spans: Of the instructions, by their numbers.
        replays: Start and duration of whole replays, in microseconds, after those.
    """

    program: str
    target: str
    instructions: tuple[InstructionRow, ...]
    locations: Mapping[str, str]
    method: str
    spans: tuple[Span, ...]
    replays: tuple[tuple[float, float], ...]

    def to_chrome(self) -> dict[str, Any]:
        """The trace as an object of the Trace Event Format."""
        tracks = list(dict.fromkeys(span.track for span in self.spans))
        events = [*self._names(tracks), *self._instruction_events(tracks), *self._replay_events()]
        return {
            "displayTimeUnit": "ns",
            "otherData": {"program": self.program, "target": self.target, "method": self.method},
            "traceEvents": events,
        }

    def save(self, path: str | Path) -> None:
        """Writes the trace as JSON, whole or not at all. Raises ArtifactError if it cannot be written."""
        text = json.dumps(self.to_chrome(), separators=(",", ":"), allow_nan=False) + "\n"
        try:
            write_whole(path, lambda stream: stream.write(text.encode()))
        except OSError as error:
            raise ArtifactError(
                f"the trace cannot be written: {error.strerror}", location=str(path)
            ) from error

    def _names(self, tracks: Sequence[str]) -> Iterator[dict[str, Any]]:
        yield _named("process_name", _INSTRUCTIONS, 0, f"@{self.program} on {self.target}: instructions")
        yield _named("process_name", _REPLAYS, 0, f"@{self.program}: whole replays")
        for number, track in enumerate(tracks):
            yield _named("thread_name", _INSTRUCTIONS, number, track)

    def _instruction_events(self, tracks: Sequence[str]) -> Iterator[dict[str, Any]]:
        for span in self.spans:
            row = self.instructions[span.launch]
            about = {
                "kernel": row.kernel,
                **({"symbol": span.symbol} if span.symbol else {}),
                "ops": list(row.src),
                "lines": list(dict.fromkeys(filter(None, map(self.locations.get, row.src)))),
                "bytes": row.bytes,
                "expected_us": row.expected_us,
            }
            at = _INSTRUCTIONS, tracks.index(span.track)
            yield _complete(row.name, row.kind, span.start_us, span.duration_us, at, about)

    def _replay_events(self) -> Iterator[dict[str, Any]]:
        for start, duration in self.replays:
            yield _complete(f"replay @{self.program}", "replay", start, duration, (_REPLAYS, 0), {})


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(
    name: str,
    category: str,
    start: float,
    duration: float,
    at: tuple[int, int],
    about: Mapping[str, object],
) -> dict[str, Any]:
    times = {"ts": round(start, 3), "dur": round(duration, 3)}
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        **times,
        "pid": at[0],
        "tid": at[1],
        "args": dict(about),
    }


def traced(
    executable: Executable,
    explanation: Explanation,
    locations: Mapping[str, str],
    inputs: Sequence[Any],
    repeats: int,
) -> Trace:
    """See `CompiledModel.trace`."""
    check_runs(repeats)
    graph_exec = executable.instantiate(**executable.dims_of(*inputs))
    graph_exec.fill({spec.name: value for spec, value in zip(executable.inputs, inputs, strict=True)})
    target, name = f"{executable.plan.backend}:{executable.plan.arch}", graph_exec.plan.name
    timeline = graph_exec.timeline(repeats)
    if timeline is None:
        raise CaptureError(f"code for {target} runs whole programs only; time replay() instead")
    rows = next(each.rows for each in explanation.programs if each.name == name)
    end = max((span.start_us + span.duration_us for span in timeline.spans), default=0.0)
    whole = [(end + start, duration) for start, duration in _replays(graph_exec, repeats)]
    return Trace(name, target, rows, locations, timeline.method, timeline.spans, tuple(whole))


def _replays(graph_exec: GraphExec, repeats: int) -> list[tuple[float, float]]:
    """Start, from the first one's, and duration of each of so many replays, in microseconds."""
    graph_exec.replay()  # the first one may go instruction by instruction
    graph_exec.synchronize()
    first = perf_counter_ns()
    found: list[tuple[float, float]] = []
    for _ in range(repeats):
        start = perf_counter_ns()
        graph_exec.replay()
        graph_exec.synchronize()
        found.append(((start - first) / 1e3, (perf_counter_ns() - start) / 1e3))
    return found
