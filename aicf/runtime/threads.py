"""A team of threads that enters one native program together.

Native programs meet at barriers inside, so all members must run at once: teams are as large as the plan says,
and one team runs one program at a time. How work is split among them is in the kernel records.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache

from aicf.errors import BackendUnavailable
from aicf.runtime.lifecycle import register


class _Member:
    """One thread, asleep until it is given a call."""

    def __init__(self, number: int) -> None:
        self._start = threading.Lock()
        self._done = threading.Lock()
        self._start.acquire()
        self._done.acquire()
        self._call: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name=f"aicf-{number}", daemon=True)
        self._thread.start()

    def give(self, call: Callable[[], None] | None) -> None:
        """Starts `call` in the thread; None ends the thread."""
        self._call = call
        self._start.release()

    def wait(self) -> BaseException | None:
        """Waits for the end of the call and gives its error."""
        self._done.acquire()
        error, self._error = self._error, None
        return error

    def end(self) -> None:
        """Ends the thread."""
        self.give(None)
        self._thread.join()

    def _loop(self) -> None:
        while True:
            self._start.acquire()
            if self._call is None:
                return
            try:
                self._call()
            except BaseException as error:
                self._error = error
            self._done.release()


def _start(count: int) -> list[_Member]:
    """Starts threads, all of them or none. Raises BackendUnavailable if the machine gives no more."""
    members: list[_Member] = []
    try:
        for number in range(1, count + 1):
            members.append(_Member(number))
    except (RuntimeError, MemoryError, OSError) as error:
        for member in members:
            member.end()
        raise BackendUnavailable(
            f"this machine cannot start {count} more threads, only {len(members)} ({error}); compile with fewer, "
            "threads=1"
        ) from error
    return members


class ThreadTeam:
    """The calling thread and `size - 1` of ours."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._turn = threading.Lock()
        self._members: list[_Member] = []

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Makes all calls at once, the first in the calling thread, and returns when all have returned.

        Raises what a call raised. Several callers take turns.
        """
        with self._turn:
            if not self._members:
                self._members = _start(self.size - 1)
                register(self)
            for member, call in zip(self._members, calls[1:], strict=True):
                member.give(call)
            try:
                calls[0]()
            finally:
                errors = self._wait()
        for error in errors:
            if error is not None:
                raise error

    def _wait(self) -> list[BaseException | None]:
        try:
            return [member.wait() for member in self._members]
        except KeyboardInterrupt:
            self._members = []  # they may be running still: the next run starts with new ones
            raise

    def release(self) -> None:
        """Ends the threads; the next `run` starts them again."""
        with self._turn:
            for member in self._members:
                member.end()
            self._members = []


@cache
def team_of(size: int) -> ThreadTeam:
    """The team of this process with `size` threads."""
    return ThreadTeam(size)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=team_of.cache_clear)  # threads do not survive a fork
