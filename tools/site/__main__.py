"""Builds the site. `make site` calls it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from aicf.tools.site.pages import ROOT, START_PLACE, SiteFile, site_files

CONFIGURATION = Path(__file__).parent


def write_sources(folder: Path, files: list[SiteFile]) -> None:
    """Writes what Sphinx reads: pages with their links adapted, and files that are copied to the site as they are."""
    for file in files:
        target = folder / file.place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.text is None:
            shutil.copyfile(ROOT / file.path, target)
        else:
            target.write_text(file.text, "utf-8")
    with (folder / START_PLACE).open("a", encoding="utf-8") as start:
        start.write(f"\n{(CONFIGURATION / 'contents.md').read_text('utf-8')}")
    shutil.copyfile(CONFIGURATION / "conf.py", folder / "conf.py")
    (folder / "_static").mkdir()
    shutil.copyfile(CONFIGURATION / "site.css", folder / "_static" / "site.css")


def build(output: Path) -> int:
    """Builds the site into a folder; the exit status of Sphinx, for which a warning is an error."""
    with tempfile.TemporaryDirectory() as folder:
        write_sources(Path(folder), site_files())
        options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"]
        command = [sys.executable, "-m", "sphinx", "--builder", "html", *options, folder, str(output)]
        return subprocess.run(command, check=False).returncode


def main(arguments: list[str]) -> int:
    """The command."""
    if len(arguments) != 1:
        print("usage: python -m aicf.tools.site OUTPUT", file=sys.stderr)
        return 2
    output = Path(arguments[0])
    if not (status := build(output)):
        print(output / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
