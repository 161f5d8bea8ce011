"""Thread teams on a machine that has no more threads to give."""

from __future__ import annotations

import threading

import pytest

from aicf.errors import BackendUnavailable
from aicf.runtime.threads import ThreadTeam


def test_a_machine_that_gives_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of those that began stays, and the next run starts with all of them."""
    start, started = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal started
        if started == 3:
            raise RuntimeError("can't start new thread")
        started += 1
        start(thread)

    team, before = ThreadTeam(9), threading.active_count()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(
            BackendUnavailable, match="cannot start 8 more threads, only 3 .*; compile with fewer"
        ):
            team.run([int] * 9)
    assert threading.active_count() == before
    team.run([int] * 9)
    team.release()
