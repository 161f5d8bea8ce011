"""Child processes that a test interrupts."""

from __future__ import annotations

import signal


def receive_interrupts() -> None:
    """For `preexec_fn`: a shell that starts the tests in the background has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
