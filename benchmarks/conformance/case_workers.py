"""Runs cases in worker processes, each with a time limit: a case that hangs or kills its process costs only itself.

Workers are forked from a process that has the cases, so that starting one costs next to nothing. That process must not
have started threads; it imports no rival.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from onnx_cases import OnnxCase
from onnx_exact import is_noise
from onnx_judge import difference
from onnx_runners import RUNNERS, Unsupported

PASS, RANDOM, NOISE, WRONG, UNSUPPORTED, CRASH = "pass", "random", "noise", "wrong", "unsupported", "crash"
STATUSES = (PASS, RANDOM, NOISE, WRONG, UNSUPPORTED, CRASH)
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        status: `pass`, `random` (other numbers than the reference drew, of an op whose definition leaves them open),
            `noise` (about as near to the outputs in f64 as the reference is), `wrong`, `unsupported` (said so), or
            `crash` (an exception that is no clear error, a dead or a late worker).
        reason: One line; empty if it passed.
        bound: Inputs whose values were given to the compiler.
    """

    status: str
    reason: str = ""
    bound: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)


def run_cases(
    cases: Sequence[OnnxCase], rival: str, jobs: int, limit: float
) -> Iterator[tuple[OnnxCase, Outcome]]:
    """The outcome of each case, as they come."""
    waiting = list(reversed(range(len(cases))))
    workers = [_Worker(cases, rival) for _ in range(min(jobs, len(cases)))]
    try:
        while busy := [worker for worker in workers if worker.take(waiting)]:
            left = min(worker.started + limit for worker in busy) - time.monotonic()
            wait([worker.pipe for worker in busy], max(left, 0.0))
            for worker in busy:
                if (outcome := worker.collect(limit)) is not None:
                    yield outcome
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process at a time, made again where it died or was late."""

    def __init__(self, cases: Sequence[OnnxCase], rival: str) -> None:
        self._cases, self._rival = cases, rival
        self._current: int | None = None
        self.started = 0.0
        self.pipe, self._process = _started(cases, rival)

    def take(self, waiting: list[int]) -> bool:
        """Starts the next case if it is free; whether it has one."""
        if self._current is None and waiting:
            self._current, self.started = waiting.pop(), time.monotonic()
            self.pipe.send(self._current)
        return self._current is not None

    def collect(self, limit: float) -> tuple[OnnxCase, Outcome] | None:
        """The outcome of its case, if there is one yet."""
        if self._current is None:
            return None
        late = time.monotonic() >= self.started + limit
        if not self.pipe.poll() and not late:
            return None
        try:
            outcome = self.pipe.recv() if self.pipe.poll() else Outcome(CRASH, f"more than {limit:g} s")
        except EOFError:
            self._process.join()
            outcome = Outcome(CRASH, f"the process ended with status {self._process.exitcode}")
        if (outcome.status == CRASH and not self._process.is_alive()) or late:
            self.stop()
            self.pipe, self._process = _started(self._cases, self._rival)
        case, self._current = self._cases[self._current], None
        return case, outcome

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _started(cases: Sequence[OnnxCase], rival: str) -> tuple[Connection, BaseProcess]:
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_serve, args=(cases, rival, theirs), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of threads: those of a test runner wait for messages
        process.start()
    theirs.close()
    return ours, process


def _serve(cases: Sequence[OnnxCase], rival: str, pipe: Connection) -> None:
    """Answers the number of a case with its outcome."""
    warnings.simplefilter("ignore")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # what rivals print about models that they refuse
    while True:
        started = time.monotonic()
        try:
            number = pipe.recv()
        except EOFError:
            return
        started = time.monotonic()
        outcome = outcome_of(cases[number], rival)
        pipe.send(Outcome(outcome.status, outcome.reason, outcome.bound, time.monotonic() - started))


def outcome_of(case: OnnxCase, rival: str) -> Outcome:
    """Runs a case in this process."""
    try:
        ran = RUNNERS[rival](case)
    except Unsupported as error:
        return Outcome(UNSUPPORTED, str(error))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        location = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return Outcome(CRASH, f"{type(error).__name__} at {location}: {' '.join(str(error).split())[:200]}")
    wrong = difference(ran.outputs, case.outputs, case.rtol, case.atol)
    if wrong is None:
        return Outcome(PASS, "", ran.bound)
    if case.is_random:
        return Outcome(RANDOM, wrong, ran.bound)
    return Outcome(NOISE if is_noise(case, ran.outputs) else WRONG, wrong, ran.bound)
