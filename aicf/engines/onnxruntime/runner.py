"""Running a session of ONNX Runtime: calls, memory of the caller, and the times of its nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from aicf.engines.external.adapter import Runner
from aicf.errors import InputMismatch
from aicf.runtime.profiler import InstructionTime
from aicf.runtime.tensors import Array

_KERNEL = "_kernel_time"
"""What the profiler appends to the name of a node for the time of its kernel."""


class OnnxRuntimeRunner(Runner):
    """See `Runner`.

    Args:
        make: Makes a session; given the beginning of a file name, one that profiles into such a file.
        plan: What the session was loaded from, of an execution provider that gives plans out.
    """

    def __init__(self, make: Callable[[str | None], Any], plan: bytes | None = None) -> None:
        self._make, self._plan = make, plan
        self._session = make(None)
        self._outputs = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `Runner`."""
        return dict(zip(self._outputs, self._session.run(None, dict(inputs)), strict=True))

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> BoundSession:
        """See `Runner`; nothing is copied on the host."""
        return BoundSession(self._session, self._outputs, inputs, outputs)

    def plan(self) -> bytes | None:
        """See `Runner`."""
        return self._plan

    def profile(self, inputs: Mapping[str, Array], repeats: int) -> tuple[InstructionTime, ...]:
        """See `Runner`: nodes after the optimisations of ONNX Runtime, by a session that profiles."""
        with TemporaryDirectory() as folder:
            session = self._make(str(Path(folder) / "profile"))
            for _ in range(repeats):
                session.run(None, dict(inputs))
            events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        return node_times(events)


def node_times(events: list[dict[str, Any]]) -> tuple[InstructionTime, ...]:
    """A row for each node of a Chrome trace that ONNX Runtime wrote."""
    samples: dict[str, list[float]] = {}
    about: dict[str, dict[str, str]] = {}
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name")).endswith(_KERNEL):
            name = str(event["name"]).removesuffix(_KERNEL)
            samples.setdefault(name, []).append(float(event["dur"]))
            about[name] = event.get("args", {})
    return tuple(
        InstructionTime(
            name,
            about[name].get("op_name", ""),
            (name,),
            about[name].get("provider", ""),
            median(times),
            min(times),
        )
        for name, times in samples.items()
    )


class BoundSession:
    """See `BoundRun`."""

    def __init__(
        self, session: Any, names: list[str], inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> None:
        self._session, self._inputs, self._given = session, inputs, outputs
        self._io = session.io_binding()
        for name, array in inputs.items():
            self._io.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._own = [name for name in names if name not in outputs]
        for name in names:
            if name in outputs:
                array = outputs[name]
                self._io.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
            else:
                self._io.bind_output(name, "cpu")
        self._names = names
        self._has_run = False

    def run(self) -> None:
        """See `BoundRun`."""
        self._session.run_with_iobinding(self._io)
        self._has_run = True

    def outputs(self) -> dict[str, Array]:
        """See `BoundRun`; outputs that are not bound are copies of what ONNX Runtime holds."""
        if self._own and not self._has_run:
            raise InputMismatch(
                f"output '{self._own[0]}' is there after the first run; run, or bind memory for it"
            )
        values = dict(zip(self._names, self._io.get_outputs(), strict=True))
        return {
            name: self._given[name] if name in self._given else values[name].numpy() for name in self._names
        }
