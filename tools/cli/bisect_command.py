"""`aicf bisect`: which decisions make one compiled program slower than another, or wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.tools.cli.arguments import Json, Weights
from aicf.tools.cli.bisect_display import bisect_display
from aicf.tools.cli.outputs import check_output
from aicf.tools.cli.run_command import read_inputs

if TYPE_CHECKING:
    from aicf.bisection import Check


def bisect_command(
    good: Annotated[
        Path, typer.Argument(metavar="GOOD", help="An artifact that is as it should be.", show_default=False)
    ],
    bad: Annotated[
        Path,
        typer.Argument(
            metavar="BAD",
            help="One of the same model, target and sizes that is not.",
            show_default=False,
        ),
    ],
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Runs COMMAND CANDIDATE.aicf. Exit status 0 is good, 1 to 127 bad, but 125 neither.",
            show_default=False,
        ),
    ] = None,
    slower: Annotated[bool, typer.Option("--slower", help="Time candidates next to both programs.")] = False,
    wrong: Annotated[bool, typer.Option("--wrong", help="Compare results with those of GOOD.")] = False,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="An array for --wrong, once for each input; random ones by default.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Of --wrong, relative to the largest element of a result; by default the square root of the spacing "
            "of its type, 3.5e-4 for f32.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random inputs.")] = 0,
    weights: Weights = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="JSON file of the verdicts and the result. The same command goes on from it.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the smallest set of decisions that makes BAD slower or wrong.

    Compiles the model with some decisions from each program (delta debugging). What does not compile, because its
    decisions do not go together, is neither good nor bad. Without any one of the decisions found, the program is good.
    """
    from aicf.bisection import bisect

    chosen = _check(check, slower, wrong, input, tolerance, seed)
    if output is not None:
        check_output(output, "the verdicts", good, bad)
    with bisect_display() as report:
        found = bisect(good, bad, chosen, weights=weights, verdicts=output, report=report)
    print(json.dumps(found.to_json_value(), indent=2) if as_json else found)


def _check(
    command: str | None,
    slower: bool,
    wrong: bool,
    inputs: list[str] | None,
    tolerance: float | None,
    seed: int,
) -> Check:
    """The check that the options ask for. Raises BadParameter for none, several, or options of another one."""
    from aicf.bisection import Script, Slower, Wrong

    if (command is not None) + slower + wrong != 1:
        raise typer.BadParameter("give one of --check COMMAND, --slower and --wrong")
    if not wrong and (inputs or tolerance is not None):
        raise typer.BadParameter("--input and --tolerance are of --wrong")
    if command is not None:
        return Script(command)
    if slower:
        return Slower(seed)
    return Wrong(read_inputs(inputs) if inputs else None, tolerance, seed)
