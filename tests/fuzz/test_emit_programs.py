"""A sample of the fuzzer of final programs, in a process of its own, for it forks. See `tests.fuzz.emit_programs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_damaged_programs_are_refused_or_run():
    count = 50
    command = [sys.executable, "-W", "error", "-m", "tests.fuzz.emit_programs", "--seed", "5"]
    command += ["--count", str(count), "--names", "encoder", "normed", "running_sums f32"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = done.stdout.splitlines()[-1]
    assert counts.startswith(f"{count} trials: ") and "refused" in counts and "ran" in counts
