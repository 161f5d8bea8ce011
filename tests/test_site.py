"""The site of the documentation: which pages it has, how links follow, and the notebook. Sphinx is not needed here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from aicf.tools.site import pages
from aicf.tools.site.__main__ import main, write_sources

ROOT = Path(__file__).parent.parent
CONTENTS = (ROOT / "tools/site/contents.md").read_text("utf-8")
NOTEBOOK = json.loads((ROOT / "docs/first-look.ipynb").read_text("utf-8"))

FILES = {
    "README.md": "[docs](docs/a.md#part), [`code`](src/x.py), [folder](src), [web](https://example.org) "
    "![p](docs/p.svg)",
    "docs/a.md": "# Part\n[up](../README.md) and [deep](../src/deep/README.md)\n```text\n[kept](../src/x.py)\n```",
    "docs/p.svg": "<svg/>",
    "src/x.py": "x = 1",
    "src/deep/README.md": "[b](../x.py) [missing](nowhere.md) [start](../../docs/a.md)",
    "src/unlinked.md": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    return tmp_path


def test_the_site_has_what_its_pages_link_to(repository: Path) -> None:
    """And nothing else; each at its place."""
    found = {file.path: file.place for file in pages.site_files(repository)}
    assert found == {
        "README.md": "index.md",
        "docs/a.md": "a.md",
        "docs/p.svg": "p.svg",
        "src/x.py": "src/x.py",
        "src/deep/README.md": "src/deep/README.md",
    }


def test_links_follow(repository: Path) -> None:
    """To other places of pages; files are downloads, folders text; code, the web and what is missing stay."""
    texts = {file.path: file.text for file in pages.site_files(repository)}
    assert texts["README.md"] == (
        "[docs](a.md#part), {download}`code <src/x.py>`, folder, [web](https://example.org) ![p](p.svg)"
    )
    assert texts["docs/a.md"] == (
        "# Part\n[up](index.md) and [deep](src/deep/README.md)\n```text\n[kept](../src/x.py)\n```"
    )
    assert texts["src/deep/README.md"] == (
        "{download}`b <../x.py>` [missing](nowhere.md) [start](../../a.md)"
    )
    assert texts["src/x.py"] is None


def test_every_page_is_in_the_contents() -> None:
    """Sphinx refuses a page that no list of contents has, and an entry without a page."""
    listed = {line for line in CONTENTS.splitlines() if re.fullmatch(r"[\w/-]+", line)}
    ours = [file.place for file in pages.site_files() if file.path.endswith((".md", ".ipynb"))]
    of_docs = {
        place.rpartition(".")[0]
        for place in ours
        if place != "index.md" and not place.startswith(("aicf/", "passes/"))
    }
    assert listed == of_docs


def test_sources_are_written_whole(tmp_path: Path) -> None:
    write_sources(tmp_path, pages.site_files())
    assert CONTENTS in (tmp_path / "index.md").read_text("utf-8")
    assert (tmp_path / "first-look.ipynb").read_bytes() == (ROOT / "docs/first-look.ipynb").read_bytes()
    assert (tmp_path / "conf.py").exists() and (tmp_path / "_static/site.css").exists()


def test_the_command_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2 and "usage" in capsys.readouterr().err


def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Each cell; it holds no output, which the site makes. Its assertions are those of a reader: equal results."""
    names: dict[str, Any] = {}
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    for cell in cells:
        exec("".join(cell["source"]), names)
    printed = capsys.readouterr().out
    for told in ("because:", "fuse-epilogues", "are not one instruction", "fusion lost of fc1", "replay"):
        assert told in printed
    assert printed.endswith("True\n")
