"""`aicf diff`: two compiled programs compared decision by decision, with an exit status for CI."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from aicf.errors import AicfError
from aicf.tools.cli.arguments import Json

EXIT_DIFFERENT, EXIT_TROUBLE = 1, 2


def diff_command(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="An artifact, or an .mlir file of final emit IR.", show_default=False
        ),
    ],
    after: Annotated[Path, typer.Argument(metavar="B", help="The one to compare.", show_default=False)],
    as_json: Json = False,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write both side by side, as aicf view does, into this file.", show_default=False
        ),
    ] = None,
) -> None:
    """Compare two compiled programs decision by decision.

    Fusion lost or gained, kernels and records, order, memory, and what they add up to. Exit status: 0 the same, 1
    different, 2 usage or a file that is no compiled program.
    """
    from aicf.comparison.diff import compare
    from aicf.compilation.saved_program import read_saved_program

    try:
        comparison = compare(read_saved_program(before), read_saved_program(after))
        if html is not None:
            from aicf.tools.cli.html_report import write_report

            write_report(html, before, after)
    except AicfError as error:
        # Status 1 says that they differ, so what cannot be compared is the trouble of diff(1).
        sys.stderr.write(f"{error.location or 'aicf'}: error: {error.message}\n")
        raise typer.Exit(EXIT_TROUBLE) from error
    print(json.dumps(comparison.to_json_value(), indent=2) if as_json else comparison)
    if not comparison.is_equal:
        raise typer.Exit(EXIT_DIFFERENT)
