"""Runs a model through engines, each in a process of its own, and puts what they took side by side.

Runs are timed in turns, a few of each engine in every round, so that what else the machine does touches all of them
alike. An engine that fails, or whose process dies, has a row that says so; the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from aicf.comparison.deviation import deviation_from
from aicf.comparison.exact import exact_outputs
from aicf.comparison.request import EXACT, NONE, CompareRequest
from aicf.comparison.results import Comparison, EngineResult
from aicf.comparison.worker import Failed, Opened, serve
from aicf.errors import PolicyError
from aicf.runtime.tensors import Array

ROUNDS = 10
_STOP_S = 10.0
"""How long a process may take to end."""


def compare(
    request: CompareRequest, name: str, digest: str, step: Callable[[str], None] = lambda what: None
) -> Comparison:
    """Measures all engines.

    Args:
        request: What to measure, with what.
        name, digest: Of the model.
        step: Is told what is done now.

    Raises:
        PolicyError: the reference is no engine of the comparison.
        AicfError: the reference cannot be computed.
    """
    if request.reference not in (EXACT, NONE, *request.engines):
        legal = ", ".join([EXACT, NONE, *request.engines])
        raise PolicyError(f"reference: '{request.reference}' is not compared; legal: {legal}")
    machine = _machine()
    workers: list[_Worker] = []
    try:
        for engine in request.engines:
            step(f"{engine} starts")
            workers.append(_Worker(engine, request))
            workers[-1].open()
        step("timing")
        for number in range(ROUNDS):
            count = request.repeats * (number + 1) // ROUNDS - request.repeats * number // ROUNDS
            for worker in workers:
                worker.sample(count)
        for worker in workers:
            worker.finish()
    finally:
        for worker in workers:
            worker.stop()
    step(f"reference: {request.reference}")
    expected, words = _reference(request, {worker.engine: worker.outputs for worker in workers})
    rows = tuple(worker.result(expected) for worker in workers)
    return Comparison(name, digest, request.sizes, request.threads, words, machine, rows)


def _reference(
    request: CompareRequest, outputs: Mapping[str, Mapping[str, Array]]
) -> tuple[Mapping[str, Array], str]:
    """What outputs are compared with, nothing if they are not, and what that is in words."""
    if request.reference == NONE:
        return {}, "none"
    if request.reference == EXACT:
        values = {name: request.feeds[name] for name in request.values}
        return exact_outputs(
            request.model, request.sizes, values, request.feeds
        ), "AICF's semantics in float64"
    return outputs[request.reference], f"engine {request.reference}"


class _Worker:
    """The parent's side of one process."""

    def __init__(self, engine: str, request: CompareRequest) -> None:
        self.engine = engine
        self.outputs: Mapping[str, Array] = {}
        self._opened: Opened | None = None
        self._samples: list[float] = []
        self._peak: int | None = None
        self._failure = ""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, engine, request), daemon=True)
        self._process.start()
        theirs.close()

    def open(self) -> None:
        """Waits for the first answer."""
        found = self._receive()
        if isinstance(found, Opened):
            self._opened, self.outputs = found, found.outputs

    def sample(self, count: int) -> None:
        """Times some runs."""
        if not self._failure and count:
            self._samples += self._ask(count) or []

    def finish(self) -> None:
        """Ends the process's session, and learns what memory it took."""
        if not self._failure:
            self._peak = self._ask(None)

    def _ask(self, what: int | None) -> Any:
        with suppress(OSError):  # `_receive` says that it is gone
            self._connection.send(what)
        return self._receive()

    def _receive(self) -> Any:
        """What the process says next; None, and a failure of this engine, if it has failed or died."""
        try:
            found = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(_STOP_S)
            self._failure = f"its process ended with status {self._process.exitcode}"
            return None
        if isinstance(found, Failed):
            self._failure = found.reason
            return None
        return found

    def stop(self) -> None:
        """Ends the process, however it is."""
        self._connection.close()
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def result(self, reference: Mapping[str, Array]) -> EngineResult:
        """The row of this engine."""
        if self._failure or self._opened is None:
            return EngineResult(self.engine, failure=self._failure)
        return EngineResult(
            self.engine,
            self._opened.record,
            self._opened.start_s,
            median(self._samples),
            min(self._samples),
            len(self._samples),
            self._peak,
            deviation_from(reference, self.outputs) if reference else None,
        )


def _machine() -> dict[str, str | float]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": float(os.cpu_count() or 1),
        "load": round(os.getloadavg()[0], 2),
    }
