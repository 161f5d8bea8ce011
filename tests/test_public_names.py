"""`import aicf` and no more: every public name, and every package that pages and errors name, is reachable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import aicf

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"\baicf((?:\.[a-z_]+)*\.[A-Za-z_]+)\(")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = [path for folder in ("aicf", "dialects", "passes", "tools") for path in (ROOT / folder).rglob("*.py")]


def called() -> list[str]:
    """What is called as `aicf.something(...)` in pages, docstrings and errors."""
    names: set[str] = set()
    for path in [*PAGES, *CODE]:
        names.update(NAME.findall(path.read_text("utf-8")))
    return sorted(names)


@pytest.mark.parametrize("name", ["training", *sorted(aicf.__all__)])
def test_public_names_are_listed(name: str) -> None:
    assert name in dir(aicf) and getattr(aicf, name) is not None


def test_what_pages_and_errors_call_is_there() -> None:
    assert {".training.initial_weights", ".compile", ".optimizers.AdamW"} <= set(called())


HOMES = sorted({name.split(".")[1] for name in called()})
PEERS = {"pytorch": pytest.mark.peers}
"""What needs packages that are no development dependency."""


@pytest.mark.parametrize("home", [pytest.param(home, marks=PEERS.get(home, ())) for home in HOMES])
def test_what_pages_and_errors_call_is_reachable(home: str) -> None:
    """In a process that named nothing else before."""
    names = [name for name in called() if name.split(".")[1] == home]
    lines = ["import aicf", *(f"aicf{name}" for name in names)]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT, timeout=120)


def test_without_pytorch_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("aicf.pytorch")]:
        monkeypatch.delitem(sys.modules, name)
    if "pytorch" in vars(aicf):
        monkeypatch.delattr(aicf, "pytorch")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(aicf.BackendUnavailable, match="needs PyTorch, which is missing: pip install"):
        aicf.pytorch  # noqa: B018


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="module 'aicf' has no attribute 'trainer'"):
        aicf.trainer  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
