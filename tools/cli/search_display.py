"""What `aicf tune --search` shows: a bar while it searches, and a table of what it found."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aicf.inspection.explain import format_table, microseconds
from aicf.support.progress import progress

if TYPE_CHECKING:
    from aicf.tuning.search import Report
    from aicf.tuning.work_search import Outcome, Standing

_MOST_NAME = 32
"""Characters of a group's id in the bar."""
_MOST_VARIANT = 80
"""Characters of a variant in the table; the file has all of it."""


@contextmanager
def search_display(seconds: float) -> Generator[Report]:
    """A bar on a terminal: the piece of work, its best time so far, the gain and the time left. Elsewhere one line at
    the end."""
    if not sys.stderr.isatty():
        with progress("searching"):
            yield lambda standing, left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("searching {task.description}"), BarColumn(), TextColumn("{task.fields[left]} left")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=seconds, left=f"{seconds:.0f} s")

        def report(standing: Standing, left: float) -> None:
            bar.update(task, completed=seconds - left, description=_words(standing), left=f"{left:.0f} s")

        yield report


def _words(standing: Standing) -> str:
    name = _cut(standing.name, _MOST_NAME)
    if standing.best_us is None:
        return name
    return f"{name}: {microseconds(standing.best_us)} us{_factor(standing)}, tried {standing.tried}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _factor(standing: Standing) -> str:
    if standing.untuned_us is None or standing.best_us is None:
        return ""
    return f", {standing.untuned_us / standing.best_us:.2f} x"


def outcome_table(outcomes: Sequence[Outcome]) -> str:
    """A row for each piece of work, and under it how many are faster by more than the noise."""
    columns = ("work", "groups", "untuned us", "tuned us", "gain", "tried", "best")
    table = format_table(columns, [_cells(outcome) for outcome in outcomes])
    better = sum(outcome.is_better for outcome in outcomes)
    cut = sum(not outcome.is_done for outcome in outcomes)
    rest = f"; {cut} were cut by the time, and the same command goes on with them" if cut else ""
    return f"{table}\n{better} of {len(outcomes)} pieces of work are faster by more than the noise{rest}"


def _cells(outcome: Outcome) -> tuple[str, ...]:
    standing = outcome.standing
    failed = f", {standing.failed} failed" if standing.failed else ""
    tried = f"{standing.tried} of {standing.variants}{failed}{'' if outcome.is_done else ', cut'}"
    times = [("" if us is None else microseconds(us)) for us in (standing.untuned_us, standing.best_us)]
    best = _cut(standing.best, _MOST_VARIANT)
    return standing.name, str(standing.groups), *times, _gain(outcome), tried, best


def _gain(outcome: Outcome) -> str:
    standing = outcome.standing
    if outcome.gain is None or standing.tried == 1 < standing.variants:
        return "not compared"
    if outcome.gain == 1.0:
        return "untuned is best"
    within = "" if outcome.is_better else ", within the noise"
    return f"{outcome.gain:.2f} x +- {outcome.noise:.2f}{within}"
