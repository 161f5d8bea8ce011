"""What `aicf bisect` shows while it searches: how many decisions are left, and the last verdict."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aicf.support.progress import progress

if TYPE_CHECKING:
    from aicf.bisection.bisecting import Report, Standing

_MOST_VERDICT = 40
"""Characters of a verdict beside the bar, which has `_BAR`."""
_BAR = 12


@contextmanager
def bisect_display() -> Generator[Report]:
    """A bar on a terminal, full when one decision is left. Elsewhere one line at the end."""
    if not sys.stderr.isatty():
        with progress("bisecting"):
            yield lambda standing: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("bisecting {task.fields[words]}"), BarColumn(_BAR), TextColumn("{task.fields[last]}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, words="", last="")

        def report(standing: Standing) -> None:
            words = f"{standing.left} of {standing.total}, tested {standing.tested}"
            done = standing.total - standing.left
            last = standing.last[:_MOST_VERDICT]
            bar.update(task, total=max(standing.total - 1, 1), completed=done, words=words, last=last)

        yield report
