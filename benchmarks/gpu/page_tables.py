"""Tables of figures on a page of the documentation, as Markdown, between two marks that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

END = "<!-- end of benchmark tables -->"


def between_marks(page: str, start: str, tables: str) -> str:
    """The page with `tables` from the line `start` to the line `END`. ValueError if it lacks one of them."""
    before, found, rest = page.partition(start)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page has no place for the tables: a line '{start}' and a line '{END}'")
    return before + tables + after


def sections(start: str, tables: Mapping[str, str]) -> str:
    """Tables under their titles, between the marks; without those that are empty."""
    filled = (part for title, table in tables.items() if table for part in (title, table))
    return "\n\n".join([start, *filled, END])


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def microseconds(us: float) -> str:
    """A time in four digits or so."""
    return f"{us:.1f}" if us < 100 else f"{us:,.0f}"


def aims(first: str, names: Mapping[str, str], found: Sequence[Mapping[str, Any]]) -> str:
    """Targets and measured figures by row; `first` is the head of the first column, `names` has the text of a row."""
    body = [
        [
            names[aim["row"]],
            aim["what"],
            aim["reach"],
            "not measured" if aim["measured"] is None else f"{aim['measured']:g}",
            {True: "yes", False: "**no**", None: "-"}[aim["reached"]],
        ]
        for aim in found
    ]
    return table([first, "what", "target", "measured", "met"], body)
