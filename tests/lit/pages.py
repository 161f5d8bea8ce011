"""The pages of the tutorial as tests: each runs in a process and a copy of the repository of its own (`session`).

python -m tests.lit.pages docs/tutorial/1-a-program.md
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
PAGES = sorted(TUTORIAL.glob("[0-9]*.md"))

_COPIED = ("aicf", "dialects", "passes", "tools", "tests/lit", "docs/tutorial")


def run_page(page: Path) -> subprocess.CompletedProcess[str]:
    """Run a page; the status is 0 if it is right, and the output says what is not."""
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            shutil.copytree(ROOT / name, Path(folder) / name, symlinks=True, ignore=_made_by_readers)
        return subprocess.run(
            [sys.executable, "-m", "tests.lit.session", page.resolve().relative_to(ROOT)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def _made_by_readers(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "build"]


def main(pages: Sequence[str]) -> int:
    """Runs the pages named."""
    done = [run_page(Path(page)) for page in pages]
    print("".join(run.stdout for run in done), end="")
    return max(run.returncode for run in done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
