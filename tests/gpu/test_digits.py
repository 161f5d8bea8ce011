"""The main job on a GPU: the digits demo's artifact, made where there may be none, gives scikit-learn's answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.artifacts import digits_folder, environment
from tests.gpu.case_table.case import ROOT

pytestmark = pytest.mark.gpu


def test_every_label_and_probability_is_that_of_scikit_learn(tmp_path: Path) -> None:
    """In a process of its own, which imports neither xDSL nor Numba."""
    build = digits_folder(tmp_path / "build")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "digits" / "check.py", build],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "compilers imported: none" in said
    assert "540 held-out images" in said and "100.00% of the labels" in said
