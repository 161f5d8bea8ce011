"""Measures ops in worker processes, each sample with a time limit. A sample that hangs or kills its process is lost
alone: the next worker continues after it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from torch_cases import DTYPES, Case, cases_of
from torch_judge import difference, eager
from torch_runners import device_of, run
from torch_table import core_overloads

from aicf.errors import UnsupportedOp

RIGHT, WRONG, UNSUPPORTED, RAISED = "right", "wrong", "unsupported", "raised"
STATUSES = (RIGHT, WRONG, UNSUPPORTED, RAISED)
_SPAWN = multiprocessing.get_context("spawn")
_OPS_OF_A_WORKER = 12
"""Native programs stay loaded, so that processes are made anew now and then."""


@dataclass(frozen=True)
class Job:
    """What holds for every op of a run."""

    target: str
    samples: int
    dtypes: tuple[str, ...]
    limit: float


@dataclass(frozen=True)
class Outcome:
    """What became of a sample.

    Attributes:
        sample: What was called with what.
        reason: One line; empty if it is right.
    """

    op: str
    dtype: str
    sample: str
    status: str
    reason: str = ""
    seconds: float = 0.0


def outcomes(op: str, job: Job, start: int = 0) -> Iterator[Case | Outcome]:
    """The samples of an op from a number on: each case before it runs, then what became of it."""
    overload = next(each for each in core_overloads() if str(each) == op)
    number, device = 0, device_of(job.target)
    for dtype in job.dtypes:
        for case in cases_of(overload, dtype, job.samples, device):
            expected = _expected(case, device)
            if expected is None:
                continue
            number += 1
            if number > start:
                yield case
                yield outcome_of(case, expected, job.target)


def _expected(case: Case, device: str) -> list[torch.Tensor] | None:
    """What eager mode gives; None for a call that it refuses, or that has nothing on the device: neither says anything
    about us. Raises if the device has failed, after which eager mode would refuse everything."""
    try:
        expected = eager(case)
    except Exception:
        if device == "cuda":
            torch.cuda.synchronize()
        return None
    tensors = [*case.tensors, *expected]
    return expected if any(each.device.type == device for each in tensors) else None


def outcome_of(case: Case, expected: Sequence[torch.Tensor], target: str) -> Outcome:
    """Runs a case in this process."""
    started = time.monotonic()
    status, reason = RIGHT, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(case, target)
            if device_of(target) == "cuda":
                torch.cuda.synchronize()
            wrong = difference(case, found, expected)
        if wrong is not None:
            status, reason = WRONG, wrong
    except Exception as error:
        status, reason = _failure(error)
    return Outcome(str(case.op), case.dtype, describe(case), status, reason, time.monotonic() - started)


def _failure(error: Exception) -> tuple[str, str]:
    text = " ".join(str(error).split())[:240]
    if isinstance(error, UnsupportedOp):
        return UNSUPPORTED, text
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return (
            UNSUPPORTED,
            "PyTorch does not trace it for sizes that are numbers: the result follows from elements",
        )
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return RAISED, f"{type(error).__name__} at {os.path.basename(frame.filename)}:{frame.lineno}: {text}"


def describe(case: Case) -> str:
    """A case in one line."""
    parts = [
        f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        if isinstance(leaf, torch.Tensor)
        else str(leaf)
        for leaf in case.leaves
    ]
    return f"{case.op}({', '.join(parts)})"[:200]


def measure(ops: Sequence[str], job: Job, jobs: int) -> Iterator[Outcome]:
    """The outcomes of all samples, as they come."""
    waiting = list(reversed(ops))
    workers = [_Worker(job, waiting) for _ in range(min(jobs, len(ops)))]
    try:
        while busy := [worker for worker in workers if worker.is_busy]:
            wait([worker.pipe for worker in busy], 1.0)
            for worker in busy:
                yield from worker.collect()
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """One process at a time, replaced when it dies, exceeds a time limit or has run many ops."""

    def __init__(self, job: Job, waiting: list[str]) -> None:
        self._job, self._waiting = job, waiting
        self._current: tuple[str, str, str] | None = None
        self.is_busy = True
        self._folder = tempfile.TemporaryDirectory()
        self._errors = Path(self._folder.name) / "stderr"
        self._start()
        self._next()

    def _start(self) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(self._job, theirs, self._errors), daemon=True)
        self._process.start()
        theirs.close()
        self._served = 0

    def _next(self) -> None:
        if not self._waiting:
            self.is_busy = False
            return
        if self._served == _OPS_OF_A_WORKER:
            self.stop()
            self._start()
        self._op, self._done = self._waiting.pop(), 0
        self._served += 1
        self._send()

    def _send(self) -> None:
        self._since = time.monotonic()
        self._current = None
        self.pipe.send((self._op, self._done))

    def collect(self) -> Iterator[Outcome]:
        """The outcomes so far. A worker sends each sample before its run, its outcome after, and None after an op."""
        try:
            while self.is_busy and self.pipe.poll():
                message = self.pipe.recv()
                self._since = time.monotonic()
                if isinstance(message, Outcome):
                    self._done += 1
                    self._current = None
                    yield message
                elif message is None:
                    self._next()
                else:
                    self._current = message
        except (EOFError, ConnectionResetError):
            self._process.join()
            yield from self._lost(
                f"the process ended with status {self._process.exitcode}", self._last_line()
            )
            return
        limit = self._job.limit * (1 if self._current else 20)  # samples are collected before the first one
        if self.is_busy and time.monotonic() > self._since + limit:
            yield from self._lost(f"more than {limit:g} s")

    def _last_line(self) -> str:
        """Of what the process wrote to its standard error since its last answer; empty if that is nothing."""
        text = self._errors.read_text("utf-8", "replace") if self._errors.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {lines[-1][:240]}" if lines else ""

    def _lost(self, reason: str, detail: str = "") -> Iterator[Outcome]:
        self.stop()
        self._start()
        if self._current is None:  # the op has no more samples then
            yield Outcome(self._op, "", self._op, RAISED, f"{reason} while it drew samples{detail}")
            self._next()
            return
        yield Outcome(*self._current, RAISED, f"{reason} while it ran the sample{detail}")
        self._done += 1
        self._send()

    def close(self) -> None:
        """Ends the process for good."""
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(job: Job, pipe: Connection, errors: Path) -> None:
    """Answers an op with the outcomes of its samples. What is written to the standard error goes to a file."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), 2)
    while True:
        try:
            op, start = pipe.recv()
        except EOFError:
            return
        os.ftruncate(2, 0)  # what libraries print about samples that they refuse
        for each in outcomes(op, job, start):
            os.ftruncate(2, 0)
            pipe.send((op, each.dtype, describe(each)) if isinstance(each, Case) else each)
        pipe.send(None)


ALL_DTYPES = tuple(DTYPES)
