"""One engine in a process of its own: it opens a session, answers once, and then times runs when it is told to.

Processes keep the packages, threads and memory of one engine from those of another. The parent asks them in turns.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

from aicf.comparison.request import CompareRequest
from aicf.engines.record import EngineRecord
from aicf.errors import AicfError
from aicf.runtime.tensors import Array

_STATUS = Path("/proc/self/status")
WARM_UP = 3
"""Runs before the first that is timed."""


@dataclass(frozen=True)
class Opened:
    """What a process says when its engine has answered once."""

    record: EngineRecord
    start_s: float
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Failed:
    """Why a process has no engine."""

    reason: str


def serve(connection: Connection, engine: str, request: CompareRequest) -> None:
    """The main function of a process: sends `Opened` or `Failed`, then a list of microseconds for each number of runs
    that it gets, and at the end, for None, the bytes by which its memory grew.
    """
    logging.getLogger("aicf.inference").setLevel(logging.ERROR)  # the table says what there is to say
    try:
        _serve(connection, engine, request)
    except AicfError as error:
        connection.send(Failed(str(error)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the parent is gone, or goes


def _serve(connection: Connection, engine: str, request: CompareRequest) -> None:
    from aicf.inference import InferenceSession

    gc.collect()
    before, started = _kilobytes("VmRSS"), perf_counter()
    with InferenceSession(
        request.model, engine=engine, device=request.device, **_options(engine, request)
    ) as session:
        outputs = session.run(request.feeds)
        connection.send(Opened(session.engine, perf_counter() - started, outputs))
        binding = session.bind(request.feeds)
        binding.run(WARM_UP)
        while (count := connection.recv()) is not None:
            connection.send([_microseconds(binding) for _ in range(count)])
        after = _kilobytes("VmHWM")
        connection.send(None if before is None or after is None else (after - before) * 1024)


def _options(engine: str, request: CompareRequest) -> dict[str, Any]:
    """What this engine follows, of the options that all are given."""
    from aicf.engines.registry import get_engine

    options = {
        "dims": dict(request.sizes) or None,
        "threads": request.threads,
        "cache_dir": request.cache_dir,
        "values": {name: request.feeds[name] for name in request.values} or None,
    }
    follows = get_engine(engine).follows
    return {name: value for name, value in options.items() if follows is None or name in follows}


def _microseconds(binding: Any) -> float:
    start = perf_counter_ns()
    binding.run()
    return (perf_counter_ns() - start) / 1e3


def _kilobytes(entry: str) -> int | None:
    """A line of this process's status; None where the system keeps none."""
    try:
        lines = _STATUS.read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{entry}:")), None)
