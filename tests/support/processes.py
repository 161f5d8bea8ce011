"""Child processes that a test interrupts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_RECEIVE = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


def interruptible(command: Sequence[str]) -> list[str]:
    """`command`, started so that Ctrl-C reaches it: a background shell has its children ignore that signal."""
    return [sys.executable, "-c", _RECEIVE, *command]
