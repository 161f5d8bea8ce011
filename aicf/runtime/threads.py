"""A team of threads that enters one native program together.

Native programs meet at barriers inside, so all members must run at once: teams are as large as the plan says,
and one team runs one program at a time. How work is split among them is in the kernel records. A run is one call of
machine code (`team_code`): no signal can come between its start and its end, and no lock of the interpreter is taken.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial

from aicf.backends.native import CEntry, CProfileEntry, Entry, ProfileEntry
from aicf.errors import BackendUnavailable
from aicf.runtime.lifecycle import register
from aicf.runtime.team_code import WHOLE_PROGRAM, TeamCode, new_block, sleepers, team_code
from aicf.support.uninterrupted import uninterrupted

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class ThreadTeam:
    """The calling thread and `size - 1` of ours, which are started by the first run. Several callers take turns."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._block: ctypes.Array[ctypes.c_char] | None = None
        self._members: list[threading.Thread] = []

    def bind(self, function: int, table: int, launch: int = WHOLE_PROGRAM) -> Callable[[], None]:
        """The call of a C function by all threads, ready to be made many times.

        Args:
            function: Its address, see `Entry`; with `launch` see `ProfileEntry`.
            table: What all threads are given.
            launch: The number of an instruction.
        """
        enter = team_code().run
        fixed = ctypes.c_void_p(function), ctypes.c_int64(launch), ctypes.c_void_p(table)

        def run() -> None:
            while enter(self._block, *fixed):
                uninterrupted(self._start)

        return run

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Makes calls of Python, one in each thread, the first in the calling one, and returns when all have returned.

        Raises what a call raised.
        """
        errors: list[BaseException] = []

        def call(tid: int, _nthreads: int, _table: int) -> None:
            try:
                calls[tid]()
            except BaseException as error:
                errors.append(error)

        callback = _CALLBACK(call)
        function = ctypes.cast(callback, ctypes.c_void_p).value
        assert function is not None
        self.bind(function, 0)()
        if errors:
            raise errors[0]

    def release(self) -> None:
        """Ends the threads once nothing runs; the next run starts them again."""
        uninterrupted(self._end)

    @property
    def sleepers(self) -> int:
        """How many of the threads are asleep, waiting for a run."""
        return 0 if self._block is None else sleepers(self._block)

    def after_fork(self) -> None:
        """Forgets the threads, which a fork leaves in the parent."""
        self._lock = threading.Lock()
        self._block = None
        self._members = []

    def _start(self) -> None:
        with self._lock:
            if self._block is not None:
                return  # another caller was here first
            block = new_block(self.size)
            self._members = self._started(block)
            self._block = block
        register(self)

    def _started(self, block: ctypes.Array[ctypes.c_char]) -> list[threading.Thread]:
        """All threads, or none. Raises BackendUnavailable if the machine gives no more."""
        members: list[threading.Thread] = []
        try:
            for tid in range(1, self.size):
                member = threading.Thread(
                    target=_serve, args=(team_code(), block, tid), name=f"aicf-{tid}", daemon=True
                )
                member.start()
                members.append(member)
        except (RuntimeError, MemoryError, OSError) as error:
            team_code().stop(block)
            for member in members:
                member.join()
            raise BackendUnavailable(
                f"this machine cannot start {self.size - 1} more threads, only {len(members)} ({error}); compile with "
                "fewer, threads=1"
            ) from error
        return members

    def _end(self) -> None:
        with self._lock:
            if self._block is None:
                return
            block, self._block = self._block, None
            team_code().stop(block)
            for member in self._members:
                member.join()
            self._members = []


def _serve(code: TeamCode, block: ctypes.Array[ctypes.c_char], tid: int) -> None:
    """What a thread does. Its frame keeps code and block to the end of the process, which does not wait for it."""
    code.serve(block, tid)


_teams: dict[int, ThreadTeam] = {}


def team_of(size: int) -> ThreadTeam:
    """The team of this process with `size` threads."""
    return _teams.setdefault(size, ThreadTeam(size))


def bind_entry(entry: Entry, threads: int, table: int) -> Callable[[], None]:
    """The call of a program by `threads` threads on one pointer table."""
    if threads == 1:
        return entry.bind(0, 1, table)
    if isinstance(entry, CEntry):
        return team_of(threads).bind(entry.address, table)
    return partial(team_of(threads).run, [entry.bind(tid, threads, table) for tid in range(threads)])


def bind_launch(entry: ProfileEntry, launch: int, threads: int, table: int) -> Callable[[], None]:
    """The call of one instruction of a program by `threads` threads, see `ProfileEntry`."""
    if threads == 1:
        return entry.bind(launch, 0, 1, table)
    if isinstance(entry, CProfileEntry):
        return team_of(threads).bind(entry.address, table, launch)
    return partial(team_of(threads).run, [entry.bind(launch, tid, threads, table) for tid in range(threads)])


def _after_fork() -> None:
    for team in _teams.values():
        team.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
