"""Queues of work: a stream runs what it is given in order, beside the caller.

Opaque on purpose: no backend's type appears here. The streams of a *plan* are decided by `schedule` and live
inside the native program; these are for callers who want to go on while a program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from aicf.runtime.graph_exec import GraphExec, check_runs
from aicf.runtime.lifecycle import register


class Event:
    """The end of one piece of submitted work."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        """Whether the work has ended, well or not."""
        return self._future.done()

    def synchronize(self) -> None:
        """Waits for the end; raises what the work raised."""
        self._future.result()


class Stream:
    """A first-in first-out queue with a thread of its own."""

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._pending: list[Event] = []

    def submit(self, work: GraphExec | Callable[[], object], n: int = 1) -> Event:
        """Queues `n` replays of a GraphExec, or `n` calls of a function.

        Raises InputMismatch if `n` is no whole number of at least 1.
        """
        check_runs(n)
        if isinstance(work, GraphExec):
            return self._queue(partial(_replay, work, n))
        return self._queue(partial(_repeat, work, n))

    def wait(self, event: Event) -> None:
        """Makes later work wait for `event`, usually of another stream; an error of it is an error here."""
        self._queue(event.synchronize)

    def record(self) -> Event:
        """An event at the end of everything queued so far."""
        return self._queue(lambda: None)

    def synchronize(self) -> None:
        """Waits for everything queued; raises the first error since the last time."""
        pending, self._pending = self._pending, []
        errors = [error for event in pending if (error := _error_of(event)) is not None]
        if errors:
            raise errors[0]

    def release(self) -> None:
        """Waits for everything queued and ends the thread; the next `submit` starts it again."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
            self._worker = None

    def _queue(self, work: Callable[[], None]) -> Event:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "aicf-stream")
            register(self)
        event = Event(self._worker.submit(work))
        self._pending = [
            known for known in self._pending if not known.is_done or _error_of(known) is not None
        ]
        self._pending.append(event)
        return event


def _replay(work: GraphExec, n: int) -> None:
    work.replay(n)
    work.synchronize()


def _repeat(work: Callable[[], object], n: int) -> None:
    for _ in range(n):
        work()


def _error_of(event: Event) -> BaseException | None:
    try:
        event.synchronize()
    except BaseException as error:
        return error
    return None
