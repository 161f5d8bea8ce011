"""`aicf explain`: what was decided about an artifact, or about one value of it, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.explain import Explanation, InstructionRow

if TYPE_CHECKING:
    from rich.console import Console


def explain_command(
    model: Annotated[
        Path, typer.Argument(metavar="ARTIFACT", help="What `aicf compile` wrote.", show_default=False)
    ],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE", help="An op id, instruction, input, output or weight.", show_default=False
        ),
    ] = None,
    rejected: Annotated[
        bool,
        typer.Option("--rejected", help="List the kernels that each instruction could not or did not take."),
    ] = False,
    why_not: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--why-not", metavar="A B", help="Why two ops are not one instruction.", show_default=False
        ),
    ] = None,
) -> None:
    """Show what was decided, and why.

    Every instruction with the decision behind it, what one value became, or why two ops are not one instruction.
    """
    from aicf.compiled import explain, explain_why_not

    if why_not is not None:
        if value is not None or rejected:
            raise typer.BadParameter("--why-not takes two ops, and neither VALUE nor --rejected")
        print(explain_why_not(model, *why_not))
        return
    explanation = explain(model, value)
    if rejected:
        print(explanation.rejected)
    elif isinstance(explanation, Explanation) and sys.stdout.isatty():
        show_tables(explanation)
    else:
        print(explanation)


def show_tables(explanation: Explanation) -> None:
    """Prints the instruction tables for people: two lines for each instruction, as wide as the terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(explanation.title, style="bold")
    for program in explanation.programs:
        console.print(f"\n@{program.name}: {program.memory}", style="bold")
        for row in program.rows:
            _show_row(console, row)


def _show_row(console: Console, row: InstructionRow) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(
        Text.assemble((row.name, "cyan"), f" {row.kind} by ", (row.kernel, "green"), f" {row.work}")
    )
    for choice, because in row.decisions:
        console.print(Padding(Text.assemble(choice, (f": {because}", "dim")), (0, 0, 0, 4)))
