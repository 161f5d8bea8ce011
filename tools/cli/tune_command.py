"""`aicf tune`: times of every kernel that could run a model, measured on the device, as a table for `--tuning`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.tools.cli.arguments import CheckFinite, Dims, Meta, Policy, Threads, Training, Values, joined_dims
from aicf.tools.cli.outputs import check_output

if TYPE_CHECKING:
    from aicf.compiled import Options
    from aicf.policies.tuning_table import TuningTable
    from aicf.tuning.cases import Prepared


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
            help="Most variants of one kernel to measure for one piece of work; they are spread over its choices.",
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
    add: Annotated[bool, typer.Option(help="Keep what the table holds, and measure only the rest.")] = False,
) -> None:
    """Measure kernels for `aicf compile --tuning`.

    Every kernel that could run a part of the model. MODEL and -o compile and measure here. MODEL and --prepare compile
    on any machine; --measure and -o then measure on the machine with the device. The table has, for each piece of work
    and variant, the median and spread of cold runs (weights in memory, as inside a program) and warm ones; what fails
    is in it with its reason. Of a training step with a memory budget, tune with the policy that `aicf policy extract`
    takes out of it: that lists what is computed again.
    """
    if measure is not None:
        _check(
            model is None and prepare is None,
            "--measure takes no MODEL and no --prepare: both are in the folder",
        )
        _check(output is not None, "--measure needs -o, the table to write")
    else:
        _check(model is not None, "give a MODEL, or a folder to --measure")
        _check((output is None) != (prepare is None), "give -o to measure here, or --prepare to only compile")
    older = None
    if output is not None:
        older = _checked_before(output, add, target if measure is None else None, model, policy)
    if model is not None:
        from aicf.compiled import Options
        from aicf.sources import policy_text

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
        prepared = _compiled(model, options, variants)
    else:
        from aicf.tuning.cases import load

        assert measure is not None
        prepared = load(measure)
    if prepare is not None:
        from aicf.tuning.cases import save

        save(prepared, prepare)
        print(f"{prepare}: {len(prepared.cases)} cases for {prepared.backend}:{prepared.arch}")
    if output is not None:
        _measure(prepared, output, older)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise typer.BadParameter(message)


def _compiled(model: Path, options: Options, variants: int) -> Prepared:
    from aicf.progress import progress
    from aicf.tuning.candidates import prepare

    with progress("preparing") as step:
        return prepare(model, options, variants, step)


def _checked_before(
    output: Path, add: bool, target: str | None, *reads: Path | str | None
) -> TuningTable | None:
    """The table to add to, if any. What would make the times useless at the end is an error before they are taken."""
    from aicf.policies.tuning_table import TuningTable
    from aicf.tuning.devices import check_device

    check_output(output, "the tuning table", *reads)
    if target is not None:
        check_device(target)
    return TuningTable.load(output) if add and output.exists() else None


def _measure(prepared: Prepared, output: Path, older: TuningTable | None) -> None:
    from aicf.errors import CaptureError
    from aicf.progress import progress
    from aicf.tuning.devices import open_device
    from aicf.tuning.measure import added, measure

    device = open_device(prepared)
    with progress("measuring") as step:
        found = measure(prepared, device, step, older)
    failures = [failure for work in found.works for failure in work.failed]
    if failures and not any(work.rows for work in found.works):
        raise CaptureError(f"nothing could be measured; {failures[0].label} failed: {failures[0].reason}")
    table = found if older is None else added(found, older)
    table.save(output)
    for failure in failures:
        print(f"{failure.label} failed: {failure.reason}", file=sys.stderr)
    rows = sum(len(work.rows) for work in table.works)
    print(f"{output}: {rows} times of {len(table.works)} pieces of work on {device.name}")
    if device.lost:
        raise CaptureError(
            f"'{failures[-1].label}' left {device.name} useless to this process: run the command again with --add, "
            "which resumes after it"
        )
