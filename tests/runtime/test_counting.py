"""Counting what one thread requests of the runtime's memory, apart from everything else."""

from __future__ import annotations

import threading

import numpy as np

from aicf.runtime.memory import HUGE_PAGE, Ledger, allocate, copy_of, counting, requested, statistics


def test_it_sees_what_is_requested_and_what_goes_later() -> None:
    ledger = Ledger()
    before = allocate(100)
    with counting("host", ledger):
        first = allocate(1000)
        second = copy_of(np.arange(50, dtype=np.float32))
        assert ledger.read().live_bytes == requested(1000) + requested(200)
        del first
    assert ledger.read().live_bytes == requested(200)
    after = allocate(4000)
    del second, before
    statistics_now = ledger.read()
    assert (statistics_now.live_bytes, statistics_now.buffers) == (0, 0)
    assert statistics_now.peak_bytes == requested(1000) + requested(200)
    del after


def test_every_kind_of_memory_and_every_nesting_has_its_own() -> None:
    outer, inner, device = Ledger(), Ledger(), Ledger()
    with counting("host", outer), counting("device", device):
        kept = [allocate(64)]
        with counting("host", inner):
            kept.append(allocate(128))
        kept.append(allocate(256))
    assert inner.read().live_bytes == requested(128)
    assert outer.read().live_bytes == requested(64) + requested(128) + requested(256)
    assert device.read().peak_bytes == 0


def test_another_thread_is_not_counted() -> None:
    ledger, kept = Ledger(), []
    before = statistics().live_bytes
    with counting("host", ledger):
        thread = threading.Thread(target=lambda: kept.append(allocate(512)))
        thread.start()
        thread.join()
    assert ledger.read().peak_bytes == 0
    assert statistics().live_bytes == before + requested(512)


def test_what_is_requested_has_room_to_align() -> None:
    assert requested(0) == 64 and requested(100) == 164 and requested(100, 256) == 356
    assert requested(HUGE_PAGE) in (2 * HUGE_PAGE, HUGE_PAGE + 64)
