"""Compiling candidates in processes of their own, while this one measures.

The passes are Python and hold the interpreter lock, so side by side means processes. They are forked from the process
that has the candidates, so that a task is a number and starting costs next to nothing. Fork them before threads are
started that hold locks: before a live display, and before a device is opened.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.errors import AicfError, BackendUnavailable, CaptureError
from aicf.tuning.candidates import Candidate
from aicf.tuning.cases import Case
from aicf.tuning.one_instruction import compiled

AHEAD = 2
"""Candidates that are compiled before their turn, for each process."""

MOST_PROCESSES = 32
"""Each that compiles for a GPU takes some hundred megabytes."""

Compiled = Case | AicfError
"""A candidate with its code, or the reason why it has none."""

_FORK = multiprocessing.get_context("fork")


class _Crash(Exception):
    """An error of the compiler itself, with its traceback in the other process as the message."""


class CaseCompiler:
    """Compiles candidates, called by their numbers; a context, at whose end nothing runs any more.

    Args:
        module: Holds the groups of the candidates.
        found: The candidates.
        processes: How many compile at a time; None for one on each core, up to `MOST_PROCESSES`.
    """

    def __init__(
        self, module: ModuleOp, context: Context, found: Sequence[Candidate], processes: int | None = None
    ) -> None:
        self._candidates = found
        count = min(processes or min(len(os.sched_getaffinity(0)), MOST_PROCESSES), len(found))
        self._wished: list[int] = []
        self._results: dict[int, Compiled] = {}
        self._workers: list[_Worker] = []
        for _ in range(count):
            earlier = [worker.pipe for worker in self._workers]
            self._workers.append(_Worker(module, context, found, earlier))

    @property
    def processes(self) -> int:
        """How many compile at a time."""
        return len(self._workers)

    def __enter__(self) -> CaseCompiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.stop()

    def wish(self, numbers: Iterable[int]) -> None:
        """What to compile next, in this order; takes the place of what was wished before and has not begun."""
        busy = {worker.task for worker in self._workers}
        self._wished = [number for number in numbers if number not in busy and number not in self._results]
        self._assign()

    def next_case(self, numbers: Iterable[int], alone: bool) -> Compiled:
        """Waits for the first candidate of `numbers`, while some of those after it are compiled. Raises as `case`.

        Args:
            alone: Whether nothing may be compiled when this returns, since the caller then needs the cores.
        """
        rest = iter(numbers)
        first = next(rest)
        if not (alone and first in self._results):
            self.wish([first, *islice(rest, AHEAD * self.processes)])
        if alone:
            self._settle()
        return self.case(first)

    def case(self, number: int) -> Compiled:
        """Waits for a candidate, which goes before all others that have not begun; it is not kept here.

        Raises:
            BackendUnavailable: what compiles for the target is missing.
            CaptureError: no process is left to compile it.
        """
        if number not in self._results and all(worker.task != number for worker in self._workers):
            self.wish([number, *(other for other in self._wished if other != number)])
        while number not in self._results:
            self._collect()
        result = self._results.pop(number)
        if isinstance(result, BackendUnavailable):
            raise result
        return result

    def _settle(self) -> None:
        """Waits until what was wished is done, so that all cores are free."""
        while any(worker.task is not None for worker in self._workers):
            self._collect()

    def _assign(self) -> None:
        for worker in self._workers:
            if self._wished and worker.task is None and worker.is_alive:
                worker.start(self._wished.pop(0))

    def _collect(self) -> None:
        """Waits for a result, and gives the processes that are free what was wished."""
        busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
        if not busy:
            raise CaptureError("all processes that compile have died; run the command again")
        for pipe in wait(list(busy)):
            worker = busy[cast("Connection", pipe)]
            number = worker.task
            assert number is not None
            self._results[number] = worker.result()
        self._assign()


class _Worker:
    """One process, and what it compiles; it is not started again where it died."""

    def __init__(
        self, module: ModuleOp, context: Context, found: Sequence[Candidate], others: Sequence[Connection]
    ) -> None:
        self.task: int | None = None
        self.is_alive = True
        self.pipe, theirs = _FORK.Pipe()
        arguments = (module, context, found, theirs, (*others, self.pipe))
        self._process: BaseProcess = _FORK.Process(target=_serve, args=arguments, daemon=True)
        with warnings.catch_warnings():
            # Python warns of threads; those of a test runner or of a library wait, and hold no lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    def start(self, number: int) -> None:
        """Gives it a candidate."""
        self.task = number
        with suppress(BrokenPipeError):  # `result` finds out how it ended
            self.pipe.send(number)

    def result(self) -> Compiled:
        """What became of its candidate, once the pipe has something to read."""
        self.task = None
        try:
            result = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.is_alive = False
            self._process.join()
            return CaptureError(f"the process that compiled it ended with status {self._process.exitcode}")
        if isinstance(result, _Crash):
            raise result
        return result

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(
    module: ModuleOp,
    context: Context,
    found: Sequence[Candidate],
    pipe: Connection,
    others: Sequence[Connection],
) -> None:
    """Answers the number of a candidate with what became of it, until the other end is closed or its process is gone.

    Args:
        others: Ends of pipes that only the process it was forked from may hold open.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the process that measures, which ends this one
    for other in others:
        other.close()
    while True:
        try:
            number: int = pipe.recv()
            pipe.send(_result(found[number], module, context))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _result(candidate: Candidate, module: ModuleOp, context: Context) -> Compiled | _Crash:
    try:
        return compiled(candidate, module, context)
    except AicfError as error:
        error.__cause__ = error.__context__ = None
        return error
    except Exception:
        return _Crash(f"{candidate.label}\n{traceback.format_exc()}")
