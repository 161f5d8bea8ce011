"""Trials that end their process, or never end, are named; the others are not disturbed."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.guards import Guarded
from tests.fuzz.isolation import Limits, Outcome, Verdict, report

ROOT = Path(__file__).parents[2]
LIMITS = Limits(seconds=2.0, memory_bytes=256 << 20, batch=6)


def odd_trial(seed: int) -> Verdict:
    """Seeds 1 to 5 are bad in one way each."""
    match seed:
        case 1:
            ctypes.memmove(0, b"x", 1)
        case 2:
            time.sleep(60)
        case 3:
            raise KeyError("lost")
        case 4:
            return Verdict("right", str(len(bytearray(1 << 30))))
        case 5:
            os.write(2, b"LLVM ERROR: out of registers\n")
            os.abort()
        case _:
            pass
    return Verdict("right", f"of {seed}")


def _python(code: str) -> bytes:
    """Runs `code` in a process of one thread: a fork of pytest's would have locks of threads that do not run."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, check=True, cwd=ROOT, timeout=60).stdout


def _outcomes(count: int) -> list[Outcome]:
    code = (
        "import pickle, sys; from tests.fuzz import test_isolation as t; from tests.fuzz.isolation import isolated;"
        f"sys.stdout.buffer.write(pickle.dumps(list(isolated(t.odd_trial, range({count}), t.LIMITS))))"
    )
    return pickle.loads(_python(code))


def test_every_trial_has_its_outcome():
    outcomes = _outcomes(14)
    assert [outcome.seed for outcome in outcomes] == list(range(14))
    kinds = ["right", "aborted(SIGSEGV)", "hung", "raised", "raised", "aborted(SIGABRT)", *["right"] * 8]
    assert [outcome.kind for outcome in outcomes] == kinds
    assert [outcome.earlier for outcome in outcomes] == [0, 1, 0, 0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 1]
    assert "KeyError: 'lost'" in outcomes[3].detail and "MemoryError" in outcomes[4].detail
    assert "LLVM ERROR: out of registers" in outcomes[5].detail
    assert outcomes[13].detail == "of 13"


def test_a_report_counts_and_names_what_is_not_good():
    lines: list[str] = []
    outcomes = [Outcome(7, "right", "", 0.1, 0), Outcome(9, "wrong", "y differs", 0.5, 1)]
    assert report(outcomes, {"right"}, show=lines.append) == 1
    assert lines == [
        "seed 9: wrong (1 trials before it)\n    y differs",
        "2 trials: right 1, wrong 1; the slowest took 0.5 s",
    ]
    assert report(outcomes[:1], {"right"}, show=lines.append) == 0


def test_an_abandoned_run_leaves_no_worker():
    code = (
        "import os; from tests.fuzz import test_isolation as t; from tests.fuzz.isolation import isolated\n"
        "outcomes = isolated(t.odd_trial, [0, 2], t.LIMITS); next(outcomes); outcomes.close()\n"
        "try:\n os.waitpid(-1, 0)\nexcept ChildProcessError: print('none')"
    )
    assert _python(code) == b"none\n"


@pytest.mark.parametrize("index", [-1, 12])
def test_a_write_outside_is_seen(index: int):
    guarded = Guarded((3, 4), "float32")
    guarded.array[...] = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert guarded.is_intact() and guarded.array.ctypes.data % 64 == 0
    ctypes.memmove(guarded.array.ctypes.data + 4 * index, b"\0", 1)
    assert not guarded.is_intact()
