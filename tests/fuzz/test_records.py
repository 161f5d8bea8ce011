"""A sample of the fuzzer of kernel records, in a process of its own, for it forks. See `tests.fuzz.records`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.dialects.func import FuncOp

from tests.fuzz.records import SOURCES

ROOT = Path(__file__).parents[2]

FEW = {
    "cpu": (40, ["product", "row", "pooling f32"]),
    "cuda:sm_90a": (25, ["row", "halves"]),
}
"""By target: how many trials, of which programs."""


@pytest.mark.parametrize("target", FEW)
def test_damaged_records_are_refused_or_right(target: str):
    count, names = FEW[target]
    command = [sys.executable, "-W", "error", "-m", "tests.fuzz.records", "--target", target, "--seed", "3"]
    command += ["--count", str(count), "--names", *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = done.stdout.splitlines()[-1]
    assert counts.startswith(f"{count} trials: ") and "refused" in counts
    assert ("right" if target == "cpu" else "built") in counts


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_a_program(name: str) -> None:
    """The tests above take samples, so they may miss one that cannot be built."""
    (function,) = (op for op in SOURCES[name]().module().body.block.ops if isinstance(op, FuncOp))
    assert len(function.body.block.ops) > 1
