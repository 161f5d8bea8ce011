"""`aicf bench`: how long a program takes on this machine, as a whole and by instruction, on random inputs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from aicf.errors import CaptureError, InputMismatch, PolicyError
from aicf.inspection.benched import Benched, BenchedInstruction, BenchResult, Timing
from aicf.inspection.random_inputs import random_inputs
from aicf.runtime.profiler import Profile, Profiler
from aicf.runtime.tensors import Array
from aicf.support.dataclass_json import to_json_value
from aicf.tools.cli.arguments import (
    ArtifactOrModel,
    Dims,
    Json,
    Policy,
    Target,
    Threads,
    Values,
    Weights,
    is_model,
    joined_dims,
)

if TYPE_CHECKING:
    from aicf.compilation.compiled import CompiledModel

_WEIGHTED = {".onnx": "an ONNX model", ".pt2": "an exported program"}
"""Models that have weights, by their files."""

WARM_UP = 5
"""Calls before the clock starts."""


RandomWeights = Annotated[
    bool, typer.Option("--random-weights", help="Make weights up, for an .mlir file without any.")
]


def bench_command(
    model: ArtifactOrModel,
    repeats: Annotated[int, typer.Option(min=1, help="Runs that are timed.")] = 100,
    weights: Weights = None,
    target: Target = None,
    dims: Dims = None,
    values: Values = "",
    policy: Policy = None,
    threads: Threads = 1,
    random_weights: RandomWeights = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="ARTIFACT",
            help="Another artifact of the model: both are timed in turns, with a verdict.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Time an artifact, or a model, on random inputs.

    Whole calls, replays, and each instruction. Target, dims, values, policy, threads and random weights are for models.
    """
    compiled = bench_model(model, weights, random_weights, target, joined_dims(dims), values, threads, policy)
    if compare is not None:
        _print_comparison(compiled, compare, weights, as_json)
        return
    found: list[Benched] = []
    for row in compiled.plan.rows:
        found.append(_bench(compiled, row.program, repeats))
        if not as_json:
            print(found[-1])
    if as_json:
        target = f"{compiled.plan.backend}:{compiled.plan.arch}"
        print(json.dumps(to_json_value(BenchResult(compiled.name, target, tuple(found))), indent=2))


def _print_comparison(first: CompiledModel, other: Path, weights: Path | None, as_json: bool) -> None:
    from aicf.bisection.compared_times import compare_times
    from aicf.compilation.reading import load

    found = compare_times(first, load(other, weights=weights))
    if as_json:
        print(json.dumps([to_json_value(each) for each in found], indent=2))
    else:
        print("\n".join(map(str, found)))


def bench_model(
    model: Path,
    weights: Path | None,
    random: bool,
    target: str | None,
    dims: str,
    values: str,
    threads: int,
    policy: str | None = None,
) -> CompiledModel:
    """What a command times: an artifact as it is, or a model, compiled.

    Raises:
        PolicyError: an artifact is given options of a model.
        AicfError: it does not load or compile.
    """
    if is_model(model):
        options = {"dims": dims, "values": values, "policy": policy, "threads": threads}
        return _compiled(model, weights, random, target, options)
    from aicf.compilation.reading import load

    _reject_options(
        target=target,
        dims=dims,
        values=values,
        policy=policy,
        threads=None if threads == 1 else threads,
        random_weights=random,
    )
    return load(model, weights=weights)


def _compiled(
    model: Path,
    weights: Path | None,
    random: bool,
    target: str | None,
    options: Mapping[str, Any],
) -> CompiledModel:
    """The model, compiled for the target with other options of `aicf.compile`."""
    from aicf.compilation.compiler import compile

    if model.suffix in _WEIGHTED or weights is not None:
        if random:
            given = "--weights has" if weights is not None else f"{_WEIGHTED[model.suffix]} brings its own"
            raise PolicyError(f"--random-weights has no effect: {given} weights; leave it out")
        return compile(model, weights, target, **options)
    from aicf.compilation.sources import read_model
    from aicf.frontends.text import make_context
    from aicf.tools.cli.random_weights import needed_weights, random_arrays

    source = read_model(model, make_context())
    if source.is_emit:
        if random:
            raise PolicyError("--random-weights has no effect on an emit program; give --weights")
        return compile(source.module, None, target, **options, name=source.name)
    names = [name for name, _ in needed_weights(source.module)]
    if names and not random:
        raise InputMismatch(
            f"missing weights {', '.join(names)}; pass a .safetensors file (--weights), or --random-weights to time "
            "the program with any",
            location=str(model),
        )
    arrays = random_arrays(source.module, np.random.default_rng(1))
    return compile(source.module, arrays, target, **options, name=source.name)


def _reject_options(**options: object) -> None:
    for name, value in options.items():
        if value:
            option = name.replace("_", "-")
            raise PolicyError(f"--{option} has no effect on an artifact, which is compiled; leave it out")


def _bench(compiled: CompiledModel, program: str, repeats: int) -> Benched:
    inputs = list(random_inputs(compiled.plan.by_name[program], seed=0).values())
    timing = time_program(compiled, program, inputs, repeats)
    try:
        profile = Profiler(compiled).measure(*inputs, repeats=repeats)
    except CaptureError as error:
        return Benched(timing, (), error.message)
    return Benched(timing, tuple(_instructions(compiled, profile)), None)


def time_program(compiled: CompiledModel, program: str, inputs: Sequence[Array], repeats: int) -> Timing:
    """Times calls and replays of one program. States change as they would in use."""
    names = [spec.name for spec in compiled.inputs]
    replayed = compiled.instantiate(**compiled.dims_of(*inputs))
    replayed.fill(dict(zip(names, inputs, strict=True)))

    def replay() -> None:
        replayed.replay()
        replayed.synchronize()

    call, whole = median_us(lambda: compiled(*inputs), repeats), median_us(replay, repeats)
    return Timing(program, call, whole, median_us(replayed.replay, repeats, replayed.synchronize))


def median_us(work: Callable[[], object], repeats: int, finish: Callable[[], object] = lambda: None) -> float:
    """Median microseconds of one call of `work`; `finish` runs after each, off the clock."""
    samples: list[int] = []
    for number in range(WARM_UP + repeats):
        start = time.perf_counter_ns()
        work()
        if number >= WARM_UP:
            samples.append(time.perf_counter_ns() - start)
        finish()
    return median(samples) / 1e3


def _instructions(compiled: CompiledModel, profile: Profile) -> Iterator[BenchedInstruction]:
    expected = {
        decision.subjects[0]: decision.cost["expected_us"]
        for decision in compiled.decisions
        if "expected_us" in decision.cost
    }
    for row in profile.instructions:
        predicted = expected.get(row.name)
        yield BenchedInstruction(
            row.name,
            row.kind,
            row.kernel,
            row.src,
            row.median_us,
            row.best_us,
            float(predicted) if isinstance(predicted, int | float) else None,
        )
