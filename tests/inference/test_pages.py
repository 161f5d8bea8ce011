"""The page about sessions and the example run as they stand, and the tables name what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aicf.inference import Event, InferenceSession
from aicf.policies.execution_policy import ExecutionPolicy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "session.md").read_text("utf-8")
MIGRATION = (ROOT / "docs" / "from-onnxruntime.md").read_text("utf-8")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "session.md", "exec"), {})
    assert "compiled batch=5" in capsys.readouterr().out


def test_the_page_lists_the_limits() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert listed == set(ExecutionPolicy.OF_SESSIONS)


def test_the_page_names_every_event() -> None:
    said = re.findall(r"`(\w+)`", (Event.__doc__ or "").partition("program:")[0])
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {"compiled", "evicted", "followed"} <= set(said)
    assert set(said) - named <= {"opened", "unsaved", "closed"}


def test_the_migration_page_names_members_and_options_that_exist() -> None:
    ours = "\n".join(re.findall(r"\| [^|]* \|([^\n]*) \|$", MIGRATION, re.MULTILINE))
    members = set(re.findall(r"session\.(\w+)", ours))
    assert members >= {"run", "bind", "profile", "input_info"}
    assert not [name for name in members if not hasattr(InferenceSession, name)]
    options = set(InferenceSession.__init__.__annotations__)
    assert not [name for name in re.findall(r"`(\w+)=", ours) if name not in options]


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second time every program comes out of the cache."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / "inference_basic.py"), str(tmp_path)]
    for said in ("compiled batch=5", "loaded batch=5"):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "8 threads, 400 calls, 1 result hash" in done.stdout
        assert said in done.stderr
