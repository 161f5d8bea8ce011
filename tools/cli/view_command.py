"""`aicf view`: every decision about a compiled program as one HTML file, or about two and what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aicf.tools.cli.html_report import write_report

_COMPILED = "An artifact, or an .mlir file of final emit IR."


def view_command(
    model: Annotated[Path, typer.Argument(metavar="ARTIFACT", help=_COMPILED, show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="HTML file to write, as in report.html.", show_default=False),
    ],
    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER]", help="Another one, to compare.", show_default=False)
    ] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Times that `aicf bench --json` wrote; once for each program.",
            show_default=False,
        ),
    ] = None,
    passes: Annotated[bool, typer.Option(help="Run the passes again, for the IR after each of them.")] = True,
) -> None:
    """Write a report that a browser shows: the model, its instructions, memory, passes and decisions.

    The file needs no network, and reading it no AICF. Nothing is run and no device is needed.
    """
    write_report(output, model, other, profile or (), passes=passes)
    print(f"{output}: open it in a browser")
