"""Which files the site has, and where: the pages under `docs/`, the README as start page, and all that these link to.

Pages keep their path without `docs/`. Files that are no page, such as a result of a benchmark, are copied as they are,
and a link to a folder becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
START, START_PLACE = "README.md", "index.md"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
_FENCED = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
_PAGES = (".md", ".ipynb")


@dataclass(frozen=True)
class SiteFile:
    """One file of the site's sources.

    Args:
        path: In the repository.
        place: In the sources of the site.
        text: Of a page, with its links adapted; None for a file that is copied.
    """

    path: str
    place: str
    text: str | None


def site_files(root: Path = ROOT) -> list[SiteFile]:
    """All files, found from the start page and from `docs/`."""
    known = {START} | {
        str(page.relative_to(root)) for end in _PAGES for page in (root / DOCS).rglob(f"*{end}")
    }
    waiting, found = sorted(known), list[SiteFile]()
    while waiting:
        path = waiting.pop()
        text = (root / path).read_text("utf-8") if path.endswith(".md") else None
        found.append(SiteFile(path, place_of(path), None if text is None else adapted(path, text, root)))
        fresh = set[str]() if text is None else linked(path, text, root) - known
        known |= fresh
        waiting += sorted(fresh)
    return sorted(found, key=lambda file: file.path)


def place_of(path: str) -> str:
    """Where the site has a file of the repository."""
    return START_PLACE if path == START else path.removeprefix(f"{DOCS}/")


def linked(path: str, text: str, root: Path = ROOT) -> set[str]:
    """The files of the repository that a page links to or shows.

    Args:
        path: Of the page.
        text: Its Markdown.
        root: Of the repository.
    """
    targets = (_target(path, match[3]) for match in _LINK.finditer(_FENCED.sub("", text)))
    return {target for target in targets if (root / target).is_file()}


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def adapted(path: str, text: str, root: Path = ROOT) -> str:
    """The Markdown of a page with its links as the site has them; the arguments are those of `linked`."""
    folder = posixpath.dirname(place_of(path)) or "."

    def link(match: re.Match[str]) -> str:
        mark, label, target, anchor = match[1], match[2], _target(path, match[3]), match[4] or ""
        if (root / target).is_dir():
            return label
        if not (root / target).is_file():
            return match[0]
        place = posixpath.relpath(place_of(target), folder)
        if target.endswith(_PAGES) or mark:
            return f"{mark}[{label}]({place}{anchor})"
        return f"{{download}}`{label.replace('`', '')} <{place}>`"

    parts = _FENCED.split(text)
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))
