"""Running the cases on the GPU, and what their results are held to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.runtime import GraphExec
from aicf.runtime.capture_plan import ARENA
from aicf.runtime.tensors import address
from tests.gpu.artifacts import obtained
from tests.gpu.cases import CASES
from tests.gpu.programs import Array, Program
from tests.support.random_graphs import run_program

ROUNDING = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
ROUNDING |= {"float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}
"""What one operation may be off in each type, against float64: of the element and the root mean square together."""

POISONS = (float("nan"), -7.0)
"""What outputs hold before a run; two, for one alone could be right by accident."""


@cache
def program(name: str) -> Program:
    """The case's program."""
    return CASES[name].make()


@cache
def executable(name: str) -> CompiledModel:
    """The case on the GPU, loaded once for all tests."""
    return obtained(name)


def instance(name: str) -> GraphExec:
    """The case, with its inputs in memory of the GPU. It has run once, instruction by instruction: what follows is the
    graph."""
    graph_exec = executable(name).instantiate()
    graph_exec.fill(program(name).inputs)
    graph_exec.replay()
    return graph_exec


def poison(graph_exec: GraphExec, value: float) -> None:
    """Overwrites every output, and all of the arena."""
    for bind in graph_exec.plan.graph.outputs:
        output = graph_exec[bind.name]
        output.assign(poisoned(output.shape, output.dtype, value))
    taken = graph_exec._take()
    rubbish = np.full(graph_exec.plan.arena_bytes, 0xFF if np.isnan(value) else 0x7B, np.uint8)
    if rubbish.size:
        taken.memory.upload(taken.block[ARENA], address(rubbish), rubbish.size, taken.queue.handle)
        taken.memory.synchronize(taken.queue.handle)


def poisoned(shape: tuple[int, ...], dtype: np.dtype, value: float) -> Array:
    """An array of `value`; integers have no NaN and get another number, bools one of both."""
    if dtype.kind in "iub":
        value = 113 if np.isnan(value) else 0 if dtype.kind == "b" else abs(value)
    return np.full(shape, value, dtype)


def results(graph_exec: GraphExec) -> dict[str, Array]:
    """The outputs, by name."""
    return {bind.name: graph_exec[bind.name].numpy() for bind in graph_exec.plan.graph.outputs}


def bits(graph_exec: GraphExec) -> str:
    """One hash over the bits of all outputs."""
    digest = hashlib.sha256()
    for value in results(graph_exec).values():
        digest.update(value.tobytes())
    return digest.hexdigest()


@cache
def expected(name: str) -> Mapping[str, Array]:
    """The outputs by the meaning of each operation, floats in float64."""
    made = program(name)
    return run_program(made.module, made.arrays)


@cache
def _rounded(name: str) -> Mapping[str, Array]:
    """The outputs if each operation rounds to its type: how exact the program is at all."""
    made = program(name)
    return run_program(made.module, made.arrays, "typed")


def assert_right(name: str, found: Mapping[str, Array]) -> None:
    """Integers and bools are equal. Floats are as close to float64 as their types allow, or three times as far off as
    a run that rounds after each operation; NaN and infinities are where they belong."""
    assert found.keys() == expected(name).keys()
    for output, wanted in expected(name).items():
        value = found[output]
        assert value.shape == wanted.shape, output
        if wanted.dtype != np.float64:
            np.testing.assert_array_equal(value, wanted, err_msg=output)
            continue
        allowed = max(
            ROUNDING[value.dtype.name] * CASES[name].depth,
            CASES[name].sums,
            3 * error(_rounded(name)[output], wanted),
        )
        assert error(value, wanted) <= allowed, output


def error(value: Array, wanted: Array) -> float:
    """The largest difference, relative to the element and the root mean square together; infinite where exactly one
    of both is finite."""
    value = value.astype(np.float64)
    finite = np.isfinite(wanted)
    with np.errstate(invalid="ignore"):
        same = np.where(finite, np.isfinite(value), (value == wanted) | (np.isnan(value) & np.isnan(wanted)))
    if not same.all():
        return float("inf")
    if not finite.any():
        return 0.0
    value, wanted = value[finite], wanted[finite]
    scale = np.abs(wanted) + np.sqrt(np.mean(wanted**2)) + np.finfo(np.float64).tiny
    return float(np.max(np.abs(value - wanted) / scale))
