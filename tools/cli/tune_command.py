"""`aicf tune`: times of every kernel that could run a model, measured on the device, as a table for `--tuning`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aicf.tuning.cases import Prepared


def tune_command(
    model: Annotated[
        Path | None, typer.Argument(help="The model, an .mlir file.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table to write, as in tuning.json.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Such as cuda or cuda:sm_90a; this machine's cpu by default.", show_default=False),
    ] = None,
    dims: Annotated[
        str, typer.Option(help="Sizes of symbolic dimensions, as in 'N=1,540;M=4'.", show_default=False)
    ] = "",
    policy: Annotated[
        str | None,
        typer.Option(help="'auto', inline JSON, or a .json or .yaml file.", show_default=False),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads that run the program together.")] = 1,
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
    """Measure the kernels that could run a model, for `aicf compile --tuning`.

    MODEL and -o compile and measure here. MODEL and --prepare compile on any machine; --measure and -o then measure on
    the machine with the device. The table has, for each piece of work and variant, the median and spread of cold runs
    (weights in memory, as inside a program) and warm ones; what fails is in it with its reason.
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
    if model is not None and output is not None:
        _require_device(target, threads)
    prepared = _prepared(model, measure, target, dims, policy, threads, variants)
    if prepare is not None:
        from aicf.tuning.cases import save

        save(prepared, prepare)
        print(f"{prepare}: {len(prepared.cases)} cases for {prepared.backend}:{prepared.arch}")
    if output is not None:
        _measure(prepared, output, add)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise typer.BadParameter(message)


def _require_device(target: str | None, threads: int) -> None:
    from aicf.backends.registry import resolve_target
    from aicf.tuning.devices import require_device

    require_device(resolve_target(target or "cpu", threads).backend.data)


def _prepared(
    model: Path | None,
    folder: Path | None,
    target: str | None,
    dims: str,
    policy: str | None,
    threads: int,
    variants: int,
) -> Prepared:
    if folder is not None:
        from aicf.tuning.cases import load

        return load(folder)
    from aicf.compiled import Options
    from aicf.progress import progress
    from aicf.sources import policy_text
    from aicf.tuning.candidates import prepare

    assert model is not None
    options = Options(target or "", policy_text(policy), dims, threads)
    with progress("preparing") as step:
        return prepare(model, options, variants, step)


def _measure(prepared: Prepared, output: Path, add: bool) -> None:
    from aicf.errors import CaptureError
    from aicf.policies.tuning_table import TuningTable
    from aicf.progress import progress
    from aicf.tuning.devices import open_device
    from aicf.tuning.measure import added, measure

    older = TuningTable.load(output) if add and output.exists() else None
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
            "which goes on behind it"
        )
