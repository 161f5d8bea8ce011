"""`aicf tune`: times of every kernel that could run a model, measured on the device, as a table for `--tuning`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.tools.cli.arguments import CheckFinite, Dims, Meta, Policy, Threads, Training, Values, joined_dims
from aicf.tools.cli.outputs import check_output

if TYPE_CHECKING:
    from aicf.compilation.record import Options
    from aicf.policies.tuning_table import TuningTable
    from aicf.tuning.tune import Tuned


def tune_command(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="The model, an .mlir, .onnx or .pt2 file.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table to write, as in tuning.json.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Such as cuda or cuda:sm_90a; this machine's cpu by default.", show_default=False),
    ] = None,
    dims: Dims = None,
    values: Values = "",
    policy: Policy = None,
    threads: Threads = 1,
    meta: Meta = None,
    check_finite: CheckFinite = False,
    training: Training = False,
    variants: Annotated[
        int,
        typer.Option(
            min=1,
            help="Most variants of one kernel to measure for one piece of work without --search; they are spread over "
            "its choices.",
        ),
    ] = 16,
    prepare: Annotated[
        Path | None,
        typer.Option(help="Only compile, into this folder; needs no device.", show_default=False),
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(help="Only measure what --prepare put into this folder.", show_default=False),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Search among all variants, from the best known through those that are alike."
        ),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option("--time", help="Seconds of the whole search; 60 by default.", show_default=False),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Begin the table anew, and measure all again.")
    ] = False,
) -> None:
    """Measure kernels for `aicf compile --tuning`.

    Every kernel that could run a part of the model. MODEL and -o compile and measure here. MODEL and --prepare compile
    on any machine; --measure and -o then measure on the machine with the device. The table has, for each piece of work
    and variant, the median and spread of cold runs (weights in memory, as inside a program) and warm ones; what fails
    is in it with its reason. It is written as the times come. The same command again goes on: it keeps the rows of the
    table and measures what they lack. With --search the time goes to the work that takes most of the program's time,
    and there to variants near the best one. Of a training step with a memory budget, tune with the policy that `aicf
    policy extract` takes out of it: that lists what is computed again.
    """
    _check_usage(model, output, prepare, measure, search, seconds)
    if model is None:
        assert measure is not None and output is not None
        _measure_folder(measure, output, replace)
        return
    from aicf.compilation.record import Options
    from aicf.compilation.sources import policy_text

    options = Options(
        target or "",
        policy_text(policy),
        joined_dims(dims),
        threads,
        meta="" if meta is None else meta.value,
        check_finite=check_finite,
        values=values,
        training=training,
    )
    if prepare is not None:
        _prepare(model, options, variants, prepare)
    else:
        from aicf.tuning.tune import seconds_of

        assert output is not None
        budget = seconds_of(search, seconds)
        older = _checked_before(output, replace, model, policy)
        _tune(model, options, variants, budget, output, older)


def _check_usage(
    model: Path | None,
    output: Path | None,
    prepare: Path | None,
    measure: Path | None,
    search: bool,
    seconds: float | None,
) -> None:
    """Raises BadParameter for options that contradict each other."""
    if measure is not None:
        _check(
            model is None and prepare is None,
            "--measure takes no MODEL and no --prepare: both are in the folder",
        )
        _check(output is not None, "--measure needs -o, the table to write")
    else:
        _check(model is not None, "give a MODEL, or a folder to --measure")
        _check((output is None) != (prepare is None), "give -o to measure here, or --prepare to only compile")
    _check(
        not search or (measure is None and prepare is None),
        "--search compiles what it measures next: give it a MODEL and -o on the machine with the device",
    )
    _check(search or seconds is None, "--time is the budget of --search; give both, or leave it out")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise typer.BadParameter(message)


def _prepare(model: Path, options: Options, variants: int, folder: Path) -> None:
    from aicf.support.progress import progress
    from aicf.tuning.cases import save
    from aicf.tuning.plan import prepare

    with progress("preparing") as step:
        prepared = prepare(model, options, variants, step)
    save(prepared, folder)
    print(f"{folder}: {len(prepared.cases)} cases for {prepared.backend}:{prepared.arch}")


def _checked_before(output: Path, replace: bool, *reads: Path | str | None) -> TuningTable | None:
    """The table to go on with, if any. What would make times useless at the end is an error before they are taken."""
    from aicf.tuning.tune import older_table

    check_output(output, "the tuning table", *reads)
    return None if replace else older_table(output)


def _tune(
    model: Path,
    options: Options,
    variants: int,
    seconds: float | None,
    output: Path,
    older: TuningTable | None,
) -> None:
    from aicf.support.progress import progress
    from aicf.tools.cli.search_display import outcome_table, search_display
    from aicf.tuning.devices import check_device
    from aicf.tuning.plan import plan
    from aicf.tuning.tune import measured, searched

    if options.target:
        check_device(options.target)
    with progress("preparing") as step:
        found = plan(model, options, variants if seconds is None else None, step)
    if seconds is None:
        with progress("measuring") as step:
            tuned = measured(found, output, older, step)
    else:
        with search_display(seconds) as report:
            tuned = searched(found, output, older, seconds, report)
        print(outcome_table(tuned.outcomes))
    _say(tuned, output)


def _measure_folder(folder: Path, output: Path, replace: bool) -> None:
    from aicf.support.progress import progress
    from aicf.tuning.cases import load
    from aicf.tuning.tune import measured_folder

    older = _checked_before(output, replace)
    prepared = load(folder)
    with progress("measuring") as step:
        tuned = measured_folder(prepared, output, older, step)
    _say(tuned, output)


def _say(tuned: Tuned, output: Path) -> None:
    for failure in tuned.failures:
        print(f"{failure.label} failed: {failure.reason}", file=sys.stderr)
    works = tuned.table.works
    rows = sum(len(work.rows) for work in works)
    print(f"{output}: {rows} times of {len(works)} pieces of work on {tuned.device}")
