"""The example with two kernel policies runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aicf.backends.registry import libraries_by_family

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "training_kernel_policy.py"
PAGE = (ROOT / "docs" / "policies.md").read_text("utf-8")


def test_the_example_runs(tmp_path: Path) -> None:
    """Both runs, and the comparison of their programs; the example itself compares the losses."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 x cpu.gemm_" in done.stdout
    assert "fusion lost of fc1: " in done.stdout
    assert "the losses differ by at most" in done.stdout
    assert {path.name for path in tmp_path.glob("*.json")} == {"ours.json", "library.json"}


@pytest.mark.parametrize("target", ["cpu", "cuda", "reference"])
def test_the_page_lists_the_libraries(target: str) -> None:
    """A kernel that is called otherwise than the others is missing in the table until somebody writes it down."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{target}` |")]
    cells = row.split("|")[2:5]
    for cell, (family, names) in zip(cells, libraries_by_family(target).items(), strict=True):
        listed = {*names, "math"} if family == "attention" else set(names)
        assert {name for name in listed if f"`{name}`" in cell} == listed
