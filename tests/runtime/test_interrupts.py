"""Ctrl-C at any moment: nothing but KeyboardInterrupt, no abort, nothing held for ever, and right results after it."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aicf.backends.machine_code import assemble, release_with
from aicf.runtime.memory import Ledger
from aicf.support.uninterrupted import uninterrupted
from tests.support.processes import interruptible

pytestmark = pytest.mark.usefixtures("few_objects")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("job", "signals"), [("load", 400), ("use", 400), ("compile", 60), ("session", 140)])
def test_a_thousand_interrupts(job: str, signals: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.interrupted", job, str(signals), "7", str(tmp_path)]
    done = subprocess.run(interruptible(command), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout[-1000:]}{done.stderr[-3000:]}"


def test_a_call_that_nothing_interrupts_gives_results_and_errors() -> None:
    assert uninterrupted(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError, match="by zero"):
        uninterrupted(lambda: 1 // 0)


def test_the_process_ends_after_a_call_that_nobody_waits_for() -> None:
    code = """
import os, signal, threading, time
from aicf.support.uninterrupted import uninterrupted
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    uninterrupted(lambda: (time.sleep(1), print("ended")))
except KeyboardInterrupt:
    print("interrupted")
"""
    command = interruptible([sys.executable, "-c", code])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["interrupted", "ended"]), done.stderr


class _Owner:
    pass


def counting_releases(make: Callable[[], object]) -> int:
    """How often machine code is released that belongs to what `make` gives, once that is gone."""
    code = assemble(
        "define void @count(ptr %at) {\n  %one = atomicrmw add ptr %at, i64 1 seq_cst\n  ret void\n}"
    )
    count = ctypes.c_int64(0)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("count"))
    owner = make()
    release_with(owner, function, ctypes.addressof(count))
    assert count.value == 0
    del owner
    gc.collect()
    gc.collect()
    return count.value


def in_a_cycle() -> object:
    owner = _Owner()
    owner.itself = owner  # pyright: ignore[reportAttributeAccessIssue]
    return owner


@pytest.mark.parametrize("make", [_Owner, in_a_cycle])
def test_what_is_gone_is_released_once(make: Callable[[], object]) -> None:
    assert counting_releases(make) == 1


def test_a_ledger_that_was_interrupted_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of adding a buffer and of subtracting one."""
    ledger, kept = Ledger(), [np.zeros(4) for _ in range(3)]
    ledger.add(kept[0], 10)

    class Interrupting(dict[int, object]):
        def __setitem__(self, key: int, value: object) -> None:
            super().__setitem__(key, value)
            raise KeyboardInterrupt

        def pop(self, key: int, default: object = None) -> object:
            super().pop(key, default)
            raise KeyboardInterrupt

    def interrupt(work: Callable[[], object]) -> None:
        monkeypatch.setattr(ledger, "_alive", Interrupting(ledger._alive))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(KeyboardInterrupt):
            work()
        monkeypatch.setattr(ledger, "_alive", dict(ledger._alive))  # pyright: ignore[reportPrivateUsage]

    interrupt(lambda: ledger.add(kept[1], 100))
    assert (ledger.read().live_bytes, ledger.read().buffers, ledger.read().peak_bytes) == (110, 2, 110)
    del kept[0]
    interrupt(ledger.read)
    assert (ledger.read().live_bytes, ledger.read().buffers) == (100, 1)
    ledger.add(kept[1], 1)
    kept.clear()
    assert (ledger.read().live_bytes, ledger.read().buffers, ledger.read().peak_bytes) == (0, 0, 110)
