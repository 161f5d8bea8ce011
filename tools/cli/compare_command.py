"""`aicf compare`: one ONNX model through several engines, and one table of what each took."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from aicf.errors import InputMismatch, PolicyError
from aicf.inspection.explain import microseconds
from aicf.inspection.random_inputs import random_array
from aicf.support.dataclass_json import to_json_value
from aicf.support.progress import progress
from aicf.tools.cli.arguments import Dims, Json, Threads, joined_dims
from aicf.tools.cli.run_command import read_inputs

if TYPE_CHECKING:
    from rich.table import Table

    from aicf.comparison.results import Comparison, EngineResult
    from aicf.engines.external.onnx_model import OnnxModel
    from aicf.runtime.tensors import Array

_WIDTH = 140
"""Columns of the table where there is no terminal to say it."""


def compare_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx file.", show_default=False)],
    engines: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Names as `aicf engines` lists them; by default all that are verified and can run here.",
            show_default=False,
        ),
    ] = "",
    dims: Dims = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="An array in place of a random one; once for each input.",
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Inputs that shapes follow from, of those given with --input: aicf compiles for their values.",
            show_default=False,
        ),
    ] = "",
    device: Annotated[
        str | None, typer.Option(help="Of every engine; its default if nothing is said.", show_default=False)
    ] = None,
    threads: Threads = 1,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder of compiled programs and plans, of engines that keep any.", show_default=False
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each engine that are timed.")] = 100,
    reference: Annotated[
        str,
        typer.Option(help="What outputs are compared with: exact (float64), the name of an engine, or none."),
    ] = "exact",
    as_json: Json = False,
) -> None:
    """Run a model through several engines, each in a process of its own, and compare them.

    Time of a run on bound memory, error, growth of memory, and seconds to the first answer. Exit status 1 if an engine
    could not be measured.
    """
    from aicf.comparison.compare import compare
    from aicf.comparison.request import CompareRequest
    from aicf.engines.external.onnx_model import read_onnx_model

    names, read = _engines(engines), read_onnx_model(model, "`aicf compare`")
    sizes = _sizes(read, joined_dims(dims))
    feeds = _feeds(read, sizes, read_inputs(input or []))
    request = CompareRequest(
        model,
        names,
        sizes,
        feeds,
        tuple(filter(None, values.split(","))),
        device,
        threads,
        cache,
        repeats,
        reference,
    )
    _check_values(request.values, feeds)
    with progress("comparing") as step:
        found = compare(request, read.name, read.digest, step)
    if as_json:
        print(json.dumps(to_json_value(found), indent=2))
    else:
        _print(found)
    if found.has_failures:
        raise typer.Exit(1)


def _engines(given: str) -> tuple[str, ...]:
    """The engines that are named, else those that are verified and here. Raises PolicyError for an unknown name."""
    from aicf.engines.registry import engine_names, get_engine

    if not given:
        known = [get_engine(name) for name in engine_names()]
        return tuple(
            engine.name for engine in known if engine.is_verified and engine.availability().is_available
        )
    names = tuple(filter(None, (name.strip() for name in given.split(","))))
    for name in names:
        get_engine(name)
    if len(set(names)) != len(names):
        raise PolicyError(f"--engines {given}: an engine is named twice; name each once")
    return names


def _sizes(model: OnnxModel, dims: str) -> dict[str, int]:
    """One size of each dimension. Raises InputMismatch if one is missing, unknown, or has several."""
    from aicf.passes.logical.specialize_shapes import parse_dims

    known = model.interface().dims
    given = parse_dims(dims)
    if unknown := [name for name in given if name not in known]:
        raise InputMismatch(
            f"--dims: there is no dimension {unknown[0]}; it has {', '.join(known) or 'none'}"
        )
    if wrong := [name for name in known if len(given.get(name, ())) != 1]:
        raise InputMismatch(f"--dims: dimension {wrong[0]} needs one size, as in --dims {wrong[0]}=8")
    return {name: given[name][0] for name in known}


def _feeds(model: OnnxModel, sizes: Mapping[str, int], given: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs: those that are given, and random ones."""
    from aicf.engines.sizes import shape_at
    from aicf.runtime.ports import reject_unknown

    rng = np.random.default_rng(0)
    reject_unknown(given, [spec.name for spec in model.inputs], "input")
    feeds: dict[str, Array] = {}
    for spec in model.inputs:
        shape = [size for size in shape_at(spec.shape, sizes) if size is not None]
        feeds[spec.name] = given[spec.name] if spec.name in given else random_array(shape, spec.dtype, rng)
    interface = model.interface()
    bucket = interface.bucket_of(interface.arguments(feeds))
    if (found := dict(zip(interface.dims, bucket.sizes, strict=True))) != sizes:
        raise InputMismatch(f"the inputs have sizes {found}, --dims says {dict(sizes)}; give the same")
    return feeds


def _check_values(names: tuple[str, ...], feeds: Mapping[str, Array]) -> None:
    if unknown := [name for name in names if name not in feeds]:
        raise PolicyError(f"--values: there is no input '{unknown[0]}'; it has {', '.join(feeds)}")


def _print(found: Comparison) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    sizes = ", ".join(f"{name}={size}" for name, size in found.sizes.items()) or "fixed sizes"
    about = found.machine
    console.print(
        f"{found.model} ({sizes}), {found.threads} thread{'s' if found.threads > 1 else ''}, on {about['processor']}, "
        f"{about['cores']:.0f} cores, load {about['load']}; error against: {found.reference}",
        markup=False,
    )
    console.print(_table(found))
    for row in found.results:
        if row.failure:
            console.print(f"{row.engine}: {row.failure}", markup=False)


def _table(found: Comparison) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("engine")
    table.add_column("version, target", overflow="fold")
    first = next((row for row in found.results if not row.failure), None)
    versus = "" if first is None else f"vs {first.engine}"
    for column in ("median us", "best us", versus, "rel. error", "abs. error", "memory MB", "start s"):
        table.add_column(column, justify="right")
    for row in found.results:
        table.add_row(*map(Text, _cells(row, 0.0 if first is None else first.median_us)))
    return table


def _cells(row: EngineResult, first: float) -> tuple[str, ...]:
    """One row; `first` is the median of the first engine that was measured."""
    if row.failure or row.record is None:
        return row.engine, "failed, see below", *([""] * 7)
    own = row.record.fingerprint
    unverified = "" if row.record.is_verified else " (unverified)"
    error = row.deviation
    return (
        f"{row.engine}{unverified}",
        f"{own.version}, {own.target}",
        microseconds(row.median_us),
        microseconds(row.best_us),
        f"{row.median_us / first:.2f}",
        "" if error is None else f"{error.relative:.1e}",
        "" if error is None else f"{error.largest:.1e}",
        "" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.1f}",
        f"{row.start_s:.2f}",
    )
