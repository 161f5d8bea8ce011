"""A sample of the fuzzer, in a process of its own, for it forks. See `tests.fuzz.artifacts` for larger ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("native", "count"), [("use", 60), ("rebuild", 12)])
def test_damaged_artifacts_are_refused_or_right(native: str, count: int):
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.fuzz.artifacts",
        "--seed",
        "7",
        "--count",
        str(count),
    ]
    command += ["--native", native, "--samples", "mlp", "indexed", "step"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = done.stdout.splitlines()[-1]
    assert counts.startswith(f"{count} trials: ") and "refused" in counts and "right" in counts
