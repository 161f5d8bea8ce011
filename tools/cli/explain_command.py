"""`aicf explain`: what was decided about an artifact, or about one value of it, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aicf.explain import COLUMNS, Explanation


def explain_command(
    model: Annotated[Path, typer.Argument(help="The artifact.", show_default=False)],
    value: Annotated[
        str | None,
        typer.Argument(help="An op id, instruction, input, output or weight.", show_default=False),
    ] = None,
) -> None:
    """Show every instruction with the decision behind it, or what one value became and why."""
    from aicf.compiled import load

    explanation = load(model).explain(value)
    if isinstance(explanation, Explanation) and sys.stdout.isatty():
        show_tables(explanation)
    else:
        print(explanation)


def show_tables(explanation: Explanation) -> None:
    """Prints the instruction tables for a terminal, as wide as it is."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    console.print(explanation.title, style="bold")
    for program in explanation.programs:
        table = Table(title=f"@{program.name}: {program.memory}", title_justify="left", title_style="bold")
        for column in COLUMNS:
            table.add_column(column, justify="right" if column in ("predicted us", "bytes") else "left")
        for row in program.rows:
            table.add_row(*row.cells())
        console.print(table)
