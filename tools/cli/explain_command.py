"""`aicf explain`: what was decided about an artifact, or about one value of it, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.inspection.explain import Explanation, InstructionRow, ValueExplanation
from aicf.support.dataclass_json import to_json_value
from aicf.tools.cli.arguments import Json

if TYPE_CHECKING:
    from rich.console import Console

    from aicf.inspection.value_names import ValueNames
    from aicf.inspection.why_not import WhyNot


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
    names: Annotated[
        bool, typer.Option("--list", help="List what VALUE can be, one name a line with what it is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what was decided, and why.

    Every instruction with the decision that led to it, what one value became, or why two ops are not one instruction.
    """
    if (value is not None or rejected) and (why_not is not None or names):
        option, takes = ("--list", "") if names else ("--why-not", " two ops, and")
        raise typer.BadParameter(f"{option} takes{takes} neither VALUE nor --rejected")
    if names and why_not is not None:
        raise typer.BadParameter("--list and --why-not are two questions; ask one at a time")
    answer = _answer(model, value, why_not, names)
    if as_json:
        print(json.dumps(to_json_value(answer), indent=2))
    elif rejected and isinstance(answer, Explanation | ValueExplanation):
        print(answer.rejected)
    elif isinstance(answer, Explanation) and sys.stdout.isatty():
        show_tables(answer)
    else:
        print(answer)


def _answer(
    model: Path, value: str | None, why_not: tuple[str, str] | None, names: bool
) -> Explanation | ValueExplanation | WhyNot | ValueNames:
    from aicf.compilation.reading import explain, explain_names, explain_why_not

    if names:
        return explain_names(model)
    return explain(model, value) if why_not is None else explain_why_not(model, *why_not)


def show_tables(explanation: Explanation) -> None:
    """Prints the instruction tables for people: two lines for each instruction, as wide as the terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(explanation.title, style="bold")
    if explanation.precision is not None:
        console.print(*explanation.precision.lines(), sep="\n")
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
