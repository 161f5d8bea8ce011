"""Runs every program of an artifact many times, and compares each run with the first: what one process of `verify`
does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aicf.certificates.certificate import ProgramRuns, array_hash, weights_hash
from aicf.certificates.environment import environment_of
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.reading import load
from aicf.inspection.random_inputs import random_inputs
from aicf.runtime.tensors import Array
from aicf.saving import artifact
from aicf.saving.tensor_bytes import view_tensors
from aicf.support.dataclass_json import to_json_value


@dataclass(frozen=True)
class Request:
    """What a process is to repeat.

    Args:
        model: Path of the artifact.
        weights: Path of a `.safetensors` file, for one without.
        runs: Of each program.
        seed: Of random inputs.
        inputs: Path of a `.safetensors` file with the inputs of one program; None for random ones of every program.
    """

    model: str
    weights: str | None
    runs: int
    seed: int
    inputs: str | None


@dataclass(frozen=True)
class Unequal:
    """The first run that gave other bits than the first one, and the output, by number from 1."""

    program: str
    output: str
    run: int


@dataclass(frozen=True)
class Series:
    """What the runs of one process gave.

    Args:
        name, target, threads, emit, native, weights, environment: See `Certificate`.
        programs: With the outputs of the first run.
        unequal: Of each program, the first run that differs; empty if none does.
    """

    name: str
    target: str
    threads: int
    emit: str
    native: str
    weights: str
    environment: dict[str, object]
    programs: tuple[ProgramRuns, ...]
    unequal: tuple[Unequal, ...]


def repeat(request: Request, report: Callable[[int], None]) -> Series:
    """Runs everything.

    Args:
        report: Called with the number of runs so far.

    Raises:
        AicfError: the artifact does not load or run, or the inputs are not its own.
    """
    compiled = load(request.model, weights=request.weights)
    programs: list[ProgramRuns] = []
    unequal: list[Unequal] = []
    for number, inputs in enumerate(_inputs(compiled, request)):
        sizes = compiled.dims_of(*(inputs[spec.name] for spec in compiled.inputs))
        program = _program(compiled, sizes)
        first = _run(compiled, inputs)
        hashes: tuple[dict[str, object], ...] = tuple(
            {name: array_hash(array) for name, array in arrays.items()} for arrays in (inputs, first)
        )
        programs.append(ProgramRuns(program, dict(sizes), *hashes))
        for run in range(2, request.runs + 1):
            name = _first_unequal(first, _run(compiled, inputs))
            if name is not None:
                unequal.append(Unequal(program, name, run))
                break
            report(number * request.runs + run)
    return _series(compiled, tuple(programs), tuple(unequal))


def _inputs(compiled: CompiledModel, request: Request) -> list[Mapping[str, Array]]:
    if request.inputs is not None:
        return [view_tensors(Path(request.inputs).read_bytes())]
    return [random_inputs(compiled.plan.by_name[row.program], request.seed) for row in compiled.plan.rows]


def _program(compiled: CompiledModel, sizes: Mapping[str, int]) -> str:
    wanted = tuple(sizes[name] for name in compiled.plan.dims)
    return next(row.program for row in compiled.plan.rows if row.sizes == wanted)


def _run(compiled: CompiledModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs, and what a run changed, from the initial state: each run begins as the first one did."""
    if not compiled.is_stateful:
        return compiled.run(inputs)
    names = list(compiled.state())
    compiled.set_state({name: compiled.weights[name] for name in names})
    return {**compiled.run(inputs), **{f"state {name}": array for name, array in compiled.state().items()}}


def _first_unequal(first: Mapping[str, Array], other: Mapping[str, Array]) -> str | None:
    """The first output whose bits are not the same; equal numbers may have other bits, and NaN may have the same."""
    for name, array in first.items():
        if not np.array_equal(_bits(array), _bits(other[name])):
            return name
    return None


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _series(
    compiled: CompiledModel, programs: tuple[ProgramRuns, ...], unequal: tuple[Unequal, ...]
) -> Series:
    plan = compiled.plan
    return Series(
        compiled.name,
        f"{plan.backend}:{plan.arch}",
        plan.threads,
        artifact.digest(compiled.record.emit.encode()),
        artifact.digest(compiled.native.code),
        weights_hash(compiled.weights),
        to_json_value(environment_of(plan)),
        programs,
        unequal,
    )
