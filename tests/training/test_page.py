"""The Python of docs/training.md runs as it stands, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "training.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of them learns its labels; the others check what they say themselves."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) > 1
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, PAGE.name, "exec"), names)
        if not number:
            first, last = map(float, capsys.readouterr().out.split())
            assert 2 < first < 3 and last < 0.05
            assert (names["scores"].argmax(axis=1) == names["labels"]).all()
            assert (tmp_path / "classifier.ckpt").exists()
