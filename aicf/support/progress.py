"""Progress of slow work on stderr: what is being done and for how long, shown only once a second has passed.

On a terminal it is one live line that goes away at the end; elsewhere (a log, a pipe) one line at the end. It knows
nothing of what the work is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aicf.support.uninterrupted import uninterrupted

SHOW_AFTER = 1.0
"""Seconds of work before anything is shown."""

Step = Callable[[str], None]
"""Says what is being done now."""


@contextmanager
def progress(title: str) -> Generator[Step]:
    """Shows `title`, the current step and the elapsed time while the body runs longer than `SHOW_AFTER`."""
    line = _Line(title)
    timer = threading.Timer(SHOW_AFTER, line.show)
    timer.daemon = True
    try:
        uninterrupted(
            timer.start
        )  # an interrupt inside would leave a lock of the standard library released twice
        yield line.step
    finally:
        timer.cancel()
        line.close()


class _Line:
    """The line; `show` runs in the timer's thread, the rest in the caller's."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._current = ""
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._closed = False

    def step(self, what: str) -> None:
        self._current = what

    def show(self) -> None:
        if not sys.stderr.isatty():
            return
        # Half of all compiles end before this import is needed.
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._closed:
                return
            live = Live(
                get_renderable=self._text, console=Console(stderr=True), refresh_per_second=5, transient=True
            )
            live.start()
            self._stop = live.stop

    def close(self) -> None:
        elapsed = time.perf_counter() - self._started
        with self._lock:
            self._closed = True
            if self._stop is not None:
                self._stop()
        if elapsed > SHOW_AFTER and not sys.stderr.isatty() and sys.exc_info()[0] is None:
            print(f"{self._title}: {elapsed:.1f} s", file=sys.stderr)

    def _text(self) -> str:
        elapsed = time.perf_counter() - self._started
        return f"{self._title}: {self._current} ({elapsed:.1f} s)"
