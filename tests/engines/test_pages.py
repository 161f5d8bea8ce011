"""The page about engines and its example run as they stand, and the page's tables say what the engines do."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aicf.engines.registry import _BUILT_IN, get_engine
from aicf.policies.policy import Policy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engines.md").read_text("utf-8")


def rows(header: str) -> dict[str, list[str]]:
    """The table below a header, by its first column."""
    body = PAGE.partition(header)[2].split("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def test_the_page_lists_the_engines_that_there_are() -> None:
    listed = rows("| engine | devices |")
    assert list(listed) == list(_BUILT_IN)
    assert {name for name, cells in listed.items() if "unverified" in cells[-1]} == {
        name for name in _BUILT_IN if not get_engine(name).is_verified
    }


@pytest.mark.parametrize("name", [name for name in _BUILT_IN if name != "aicf"])
def test_the_page_says_what_each_follows(name: str) -> None:
    dims, threads, cache, fields = rows("| | `dims` | `threads` |")[name]
    said = {"dims": dims, "threads": threads, "cache_dir": cache}
    arguments = {argument for argument, cell in said.items() if not cell.startswith("no")}
    own = {entry.name for section in Policy().sections for entry in dataclasses.fields(section)}
    follows = get_engine(name).follows
    assert follows is not None
    assert arguments == follows - own
    assert set(re.findall(r"`(\w+)`", fields)) & own == follows & own


@pytest.mark.peers
def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, "engines.md", "exec"), names)
    x, w, answers = names["x"], names["w"], names["answers"]
    assert isinstance(x, np.ndarray) and isinstance(w, np.ndarray) and isinstance(answers, dict)
    scores = x.astype(np.float64) @ w
    powers = np.exp(scores - scores.max(1, keepdims=True))
    assert list(answers) == ["aicf", "onnxruntime", "openvino"]
    for found in answers.values():
        np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-4, atol=1e-7)
    assert capsys.readouterr().out.count("(opaque)") == 2


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "npu_inference.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.peers
def test_the_example_runs_without_an_npu(tmp_path: Path) -> None:
    done = run_example("--engine", "openvino", "--device", "cpu", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "0 plans from disk" in done.stdout and "2 plans from disk" in done.stdout
    assert done.stdout.count("no plan for batch=5; made for batch=1 | batch=32") == 2


@pytest.mark.peers
def test_the_example_finds_an_npu_or_says_why_not(tmp_path: Path) -> None:
    done = run_example(str(tmp_path))
    if done.returncode:
        assert "no engine finds an NPU here; --engine and --device choose another device" in done.stderr
        assert "openvino: its devices are " in done.stdout and "tensorrt: " in done.stdout
    else:
        assert "2 plans from disk" in done.stdout
