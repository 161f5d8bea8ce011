"""`aicf bench`: how long a program takes on this machine, as a whole and by instruction, on random inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from aicf.errors import CaptureError, PolicyError
from aicf.explain import format_table, microseconds
from aicf.runtime.graph import Bind
from aicf.runtime.profiler import Profile, Profiler
from aicf.runtime.tensors import Array, numpy_dtype
from aicf.tools.cli.arguments import ArtifactOrModel, Dims, Target, Threads, Values, Weights, is_model

if TYPE_CHECKING:
    from aicf.compiled import CompiledModel

WARM_UP = 5
"""Calls before the clock starts."""


@dataclass(frozen=True)
class Timing:
    """Median microseconds of one program: a call with fresh outputs, a replay on memory of its own from its start to
    its end, and the part of the replay after which the caller goes on (all of it on the host)."""

    program: str
    call_us: float
    replay_us: float
    host_us: float


def bench_command(
    model: ArtifactOrModel,
    repeats: Annotated[int, typer.Option(min=1, help="Runs that are timed.")] = 100,
    weights: Weights = None,
    target: Target = None,
    dims: Dims = "",
    values: Values = "",
    threads: Threads = 1,
) -> None:
    """Time an artifact, or a model, on random inputs.

    Whole calls, replays, and each instruction. Target, dims, values and threads are for models.
    """
    if is_model(model):
        from aicf.compiler import compile

        compiled = compile(model, weights, target, dims=dims, values=values, threads=threads)
    else:
        from aicf.compiled import load

        _reject_options(target=target, dims=dims, values=values, threads=None if threads == 1 else threads)
        compiled = load(model, weights=weights)
    rng = np.random.default_rng(0)
    for row in compiled.plan.rows:
        program = compiled.plan.by_name[row.program]
        inputs = [random_input(bind, rng) for bind in program.graph.inputs]
        timing = time_program(compiled, row.program, inputs, repeats)
        print(
            f"@{timing.program}: call {microseconds(timing.call_us)} us, replay "
            f"{microseconds(timing.replay_us)} us, of which the caller waits {microseconds(timing.host_us)} us"
        )
        try:
            profile = Profiler(compiled).measure(*inputs, repeats=repeats)
        except CaptureError as error:
            print(f"  no times by instruction: {error.message}")
        else:
            print(profile_table(compiled, profile))


def _reject_options(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise PolicyError(f"--{name} has no effect on an artifact, which is compiled; leave it out")


def random_input(bind: Bind, rng: np.random.Generator) -> Array:
    """Data for one input: normal floats, small integers, either truth value."""
    dtype = numpy_dtype(bind.dtype)
    if dtype.kind == "b":
        return rng.random(bind.shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 100, bind.shape).astype(dtype)
    return rng.standard_normal(bind.shape).astype(dtype)


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


def profile_table(compiled: CompiledModel, profile: Profile) -> str:
    """Measured beside predicted microseconds of each instruction."""
    expected = {
        decision.subjects[0]: decision.cost["expected_us"]
        for decision in compiled.decisions
        if "expected_us" in decision.cost
    }
    rows = [
        (
            f"  {row.name}",
            row.kind,
            row.kernel,
            microseconds(row.median_us),
            microseconds(row.best_us),
            str(expected.get(row.name, "")),
        )
        for row in profile.instructions
    ]
    return format_table(("  instruction", "kind", "kernel", "median us", "best us", "predicted us"), rows)
