"""`aicf profile`: which ops of a model take the time, and a trace of what ran when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from aicf.inspection.explain import format_table, microseconds
from aicf.inspection.random_inputs import random_inputs
from aicf.runtime.profiler import Profile, Profiler
from aicf.tools.cli.arguments import (
    ArtifactOrModel,
    Dims,
    Json,
    Policy,
    Target,
    Threads,
    Values,
    Weights,
    joined_dims,
)
from aicf.tools.cli.bench_command import RandomWeights, bench_model

MOST_OPS = 20
"""Rows of the table."""


def profile_command(
    model: ArtifactOrModel,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Trace to write, a .json file that ui.perfetto.dev opens.",
            show_default=False,
        ),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(help="Of a model with several sizes; the first by default.", show_default=False),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs that are timed.")] = 100,
    weights: Weights = None,
    target: Target = None,
    dims: Dims = None,
    values: Values = "",
    policy: Policy = None,
    threads: Threads = 1,
    random_weights: RandomWeights = False,
    as_json: Json = False,
) -> None:
    """Time the ops of an artifact, or of a model, on random inputs.

    An instruction that stands for several ops is shared among them by their scalar operations.
    """
    from aicf.errors import InputMismatch, did_you_mean

    compiled = bench_model(model, weights, random_weights, target, joined_dims(dims), values, threads, policy)
    names = [row.program for row in compiled.plan.rows]
    if program is not None and program not in names:
        raise InputMismatch(
            f"there is no program '{program}'; {did_you_mean(program, names) or ', '.join(names)}"
        )
    chosen = names[0] if program is None else program
    inputs = list(random_inputs(compiled.plan.by_name[chosen], seed=0).values())
    profile = Profiler(compiled).measure(*inputs, repeats=repeats)
    if output is not None:
        compiled.trace(*inputs, repeats=min(repeats, _TRACED)).save(output)
    if as_json:
        print(json.dumps(_plain(profile), indent=2))
    else:
        print(_table(profile))
        if output is not None:
            print(f"{output}: open it in ui.perfetto.dev or chrome://tracing")


_TRACED = 10
"""Runs that a trace has, at most: more are no easier to read."""


def _plain(profile: Profile) -> dict[str, object]:
    return {
        "program": profile.program,
        "replay_us": profile.replay_us,
        "instructions_us": profile.total_us,
        "ops_us": profile.by_source(),
    }


def _table(profile: Profile) -> str:
    times = profile.by_source()
    total = profile.total_us or 1.0
    rows = [
        (name, microseconds(time), f"{time / total:.1%}") for name, time in list(times.items())[:MOST_OPS]
    ]
    head = (
        f"@{profile.program}: replay {microseconds(profile.replay_us)} us, "
        f"{len(profile.instructions)} instructions {microseconds(profile.total_us)} us"
    )
    more = len(times) - len(rows)
    rest = (
        [f"and {more} more ops, {microseconds(sum(list(times.values())[MOST_OPS:]))} us"] if more > 0 else []
    )
    return "\n".join([head, format_table(("op", "median us", "share"), rows), *rest])
