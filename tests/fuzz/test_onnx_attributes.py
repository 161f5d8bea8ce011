"""A sample of the fuzzer of huge attributes, in a process of its own, for it forks. See `onnx_attributes`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


OPS = ["AveragePool", "Resize", "TfIdfVectorizer", "SplitToSequence", "ConvTranspose"]


def test_huge_attributes_compile_or_are_refused_in_time():
    command = [sys.executable, "-m", "tests.fuzz.onnx_attributes", "--ops", *OPS, "--sample", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compiled" in done.stdout and "refused" in done.stdout
