"""Work that no signal handler can interrupt.

Python runs a signal handler in the main thread, between any two of its bytecodes. A KeyboardInterrupt between a call
that opens something and the note of it leaves it open for ever.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    """One call in another thread, and what became of it. Its lock is free once it is over."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.over = threading.Lock()
        self.over.acquire()

    def run(self) -> None:
        assert self._function is not None
        _calls[id(self)] = self
        try:
            self._result.append(self._function())
        except BaseException as error:
            # A traceback keeps frames, and so native objects, for a thread that can be interrupted.
            self._error = error.with_traceback(None)
            self._error.__context__ = None
        self._function = None
        del _calls[id(self)]
        self.over.release()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


_calls: dict[int, _Call[Any]] = {}
"""Those that run."""


def uninterrupted(function: Callable[[], T]) -> T:
    """`function()`, which no signal handler interrupts: the main thread has another one call it.

    A handler that raises ends the wait at once. The call goes on to its end then, and its result is dropped: it must
    own nothing native, or release it by itself.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return function()
    call = _Call(function)
    _thread.start_new_thread(call.run, ())
    call.over.acquire()
    return call.result()


def _wait_for_calls() -> None:
    """For the end of the process: LLVM must not go away while a call that nobody waits for is in it."""
    for call in list(_calls.values()):
        call.over.acquire()


atexit.register(_wait_for_calls)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_calls.clear)
