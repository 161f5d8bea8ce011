"""`aicf verify`: whether a program gives the same bits in every run and process, with a certificate of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.errors import AicfError
from aicf.support.progress import progress
from aicf.tools.cli.arguments import Json, Weights
from aicf.tools.cli.diff_command import EXIT_DIFFERENT, EXIT_TROUBLE
from aicf.tools.cli.outputs import check_output
from aicf.tools.cli.run_command import read_inputs

if TYPE_CHECKING:
    from aicf.certificates import Verification
    from aicf.certificates.verifying import Report


def verify_command(
    model: Annotated[
        Path, typer.Argument(metavar="ARTIFACT", help="What `aicf compile` wrote.", show_default=False)
    ],
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of each program in each process; 1000 by default, or as in the certificate.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="3 by default, or as in the certificate.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of random inputs; 0 by default.", show_default=False)
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="An array instead of random ones, once for each input.",
            show_default=False,
        ),
    ] = None,
    weights: Weights = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Certificate to write, as in certificate.json, if all runs are the same.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="CERTIFICATE", help="Compare with what it says.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a program many times in several processes, and compare all bits.

    On fixed inputs, each run from the initial state. A certificate says what was repeated and where, with hashes of
    inputs, weights, program and outputs; --against runs that again. Exit status: 0 all the same, 1 a run, an output or
    the program differs, 2 usage or a program that does not run.
    """
    try:
        if output is not None:
            check_output(output, "the certificate", model, against, weights)
        found = _verify(model, runs, processes, seed, input, weights, against)
        if output is not None and found.is_same:
            found.certificate.save(output)
    except AicfError as error:
        # Status 1 says that something differs, as of diff(1).
        sys.stderr.write(f"{error.location or 'aicf'}: error: {error.message}\n")
        raise typer.Exit(EXIT_TROUBLE) from error
    print(json.dumps(found.to_json_value(), indent=2) if as_json else found)
    if not found.is_same:
        raise typer.Exit(EXIT_DIFFERENT)


def _verify(
    model: Path,
    runs: int | None,
    processes: int | None,
    seed: int | None,
    inputs: list[str] | None,
    weights: Path | None,
    against: Path | None,
) -> Verification:
    from aicf.certificates import verify

    arrays = read_inputs(inputs) if inputs else None
    with _display() as report:
        return verify(
            model,
            runs,
            processes,
            seed=seed,
            inputs=arrays,
            weights=weights,
            against=against,
            report=report,
        )


@contextmanager
def _display() -> Generator[Report]:
    """On a terminal, the process and its runs so far. Elsewhere one line at the end."""
    with progress("verifying") as step:
        yield lambda number, runs: step(f"process {number}, run {runs}")
