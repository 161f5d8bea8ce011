"""The tutorial says what happens: every command of every page is typed, and what the page shows must come.

The same by plain lit: `lit lit_tests/tutorial`. How a page is read is in `tests/lit/session.py`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.lit.pages import PAGES, TUTORIAL, run_page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_happens(page: Path) -> None:
    done = run_page(page)
    assert done.returncode == 0, done.stdout


def test_the_pages_are_numbered_and_listed() -> None:
    listed = re.findall(
        r"^\d\. \[[\w ,]+\]\((\S+)\)", (TUTORIAL / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert listed == [page.name for page in PAGES]
    assert [int(page.name[0]) for page in PAGES] == list(range(1, len(PAGES) + 1))
    for page, following in pairwise(PAGES):
        assert f"]({following.name})" in page.read_text("utf-8").splitlines()[-1]
