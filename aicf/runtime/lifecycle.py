"""What the runtime holds and gives back: `init` and `shutdown`.

Whoever owns memory, threads or loaded code registers itself here, weakly, and takes everything again on its
next use after a shutdown. Data of users (weights, state, bound arrays) is theirs and stays.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import Protocol

from aicf.runtime.weak_members import WeakMembers


class Releasable(Protocol):
    """Something that holds runtime resources and can let go of them."""

    def release(self) -> None:
        """Waits for work in flight and lets go of everything; the next use takes it again."""
        ...


_lock = threading.Lock()
_holders: WeakMembers[Releasable] = WeakMembers()
_initialized = False


def init() -> None:
    """Makes the runtime ready. Implicit at the first use of anything, and idempotent."""
    global _initialized
    _initialized = True


def is_initialized() -> bool:
    """Whether the runtime may hold resources."""
    return _initialized


def register(holder: Releasable) -> None:
    """Lets `shutdown` release `holder`."""
    init()
    with _lock:
        _holders.add(holder)


def shutdown() -> None:
    """Releases arenas, threads, streams and loaded code. State survives; the next call works again."""
    global _initialized
    with _lock:
        holders = _holders.all()
        _holders.clear()
    _initialized = False
    with ExitStack() as rest:  # one that fails keeps none of the others
        for holder in reversed(holders):
            rest.callback(holder.release)


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
