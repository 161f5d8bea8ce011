"""Reductions of windows that reach beyond the operand: one kernel that writes no padded copy, on a simulated GPU.

The windows are those of poolings, whose own kernel is forbidden here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.dialects.emit import ResolvedOp
from aicf.dialects.emit_kernels import LoadOp
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import make_context
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.runtime.tensors import numpy_dtype
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import compiled, prepared, simulated
from tests.passes.test_raise_emit import stripped
from tests.support.generated_code import check_codes
from tests.support.random_graphs import run_program

Array = NDArray[Any]
Pool = Callable[[Graph, Value], Value]
POOLS: dict[str, tuple[tuple[int, ...], Pool]] = {
    "max": ((2, 3, 9, 12), lambda g, x: g.max_pool(x, [3, 3], [2, 2], None, [1, 1], [1, 1])),
    "max-relu": (
        (1, 2, 7, 7),
        lambda g, x: g.relu(g.max_pool(x, [5, 5], [1, 1], None, [2, 2], [2, 2])) + 1.0,
    ),
    "max-one-side": (
        (3, 2, 31),
        lambda g, x: g.max_pool(x, [4], [3], [2], [0], [1], ceil_mode=True),
    ),
    "max-block": (
        (1, 2, 5, 6, 7),
        lambda g, x: g.max_pool(x, [3, 2, 3], [1, 2, 2], None, [1, 0, 1], [1, 1, 0]),
    ),
    "max-indices": (
        (2, 3, 9, 12),
        lambda g, x: g.max_pool_indices(x, [3, 2], [2, 1], [1, 2], [1, 0], [1, 1]),
    ),
    "average": ((2, 3, 9, 12), lambda g, x: g.avg_pool(x, [3, 3], [2, 1], None, [1, 1], [1, 1])),
    "average-padding": (
        (1, 4, 8, 11),
        lambda g, x: g.avg_pool(x, [5, 3], [3, 2], [1, 2], [4, 4], [4, 4], count_include_pad=True),
    ),
    "of-padded-numbers": (
        (2, 3, 20),
        lambda g, x: g.reduce_max(g.window(g.pad(x, [0, 0, 2], [0, 0, 3], 1.5), [4], [2], [1]), [3]),
    ),
}
FORBID = '{"forbid": ["cuda.pool", "cuda.pool_taps"]}'
WITHIN = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3, "i8": 0}


def graph_of(pool: str, dtype: str) -> Graph:
    shape, make = POOLS[pool]
    g = Graph("pool")
    g.output(make(g, g.input("x", shape, dtype)), "y")
    return g


def values(pool: str, dtype: str) -> Array:
    random, shape = np.random.default_rng(5), POOLS[pool][0]
    if dtype == "i8":
        return random.integers(-128, 128, shape).astype(np.int8)
    found = random.standard_normal(shape) - 3.0  # a border of zeros would be the largest
    return found.astype(numpy_dtype(dtype))


CASES = [
    *((pool, dtype) for pool in POOLS for dtype in ("f32", "f16", "bf16")),
    *((pool, "i8") for pool in ("max", "max-one-side", "max-block", "max-indices")),
]


def simulated_result(pool: str, dtype: str, x: Array) -> tuple[Array, ModuleOp]:
    """What the one kernel gives, and the final module."""
    module = graph_of(pool, dtype).module()
    plan, unit = compiled(module, FORBID)
    assert len(unit.launches) == 1 and plan.arena_bytes == 0
    return simulated(plan, unit, {"x": x} | prepared(module, {"x": x}))["y"], module


@pytest.mark.parametrize(("pool", "dtype"), CASES)
def test_one_kernel_and_no_copy(pool: str, dtype: str) -> None:
    """The operand is read in memory, behind tests of the place; what the program says, and what runs, is right."""
    x = values(pool, dtype)
    wanted = run_program(graph_of(pool, dtype).module(), {"x": x})["y"].astype(np.float64)
    found, module = simulated_result(pool, dtype, x)
    np.testing.assert_allclose(found.astype(np.float64), wanted, WITHIN[dtype], WITHIN[dtype])
    assert check_codes(module, {"x": x}) == 1
    loads = [op for op in module.walk() if isinstance(op, LoadOp)]
    assert loads and all(op.condition is not None for op in loads)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_windows(number: float) -> None:
    """In a corner, whose windows have a border, and inside."""
    x = values("max", "f32")
    x[0, 0, 0, 0] = x[1, 2, 4, 7] = number
    for pool in ("max", "average"):
        wanted = run_program(graph_of(pool, "f32").module(), {"x": x})["y"].astype(np.float32)
        found, _ = simulated_result(pool, "f32", x)
        np.testing.assert_allclose(found, wanted, 1e-6, 1e-6)
        assert not np.isfinite(found[0, 0, 0, 0]) or number == -np.inf


@pytest.mark.parametrize("pool", POOLS)
def test_raised_it_compiles_to_the_same_program(pool: str) -> None:
    """With its kernels pinned, and from the CPU, which takes the group because the policy lists it."""
    module = graph_of(pool, "f32").module()
    compiled(module, FORBID)
    first = stripped(module)
    RaiseEmitPass().apply(make_context(), module)
    run(AicfInferencePass("", start="lowered").passes(), make_context(), module)
    assert stripped(module) == first
    for target in ("cpu:x86-64-v3", "cuda:sm_90a"):
        RaiseEmitPass("groups").apply(make_context(), module)
        run(AicfInferencePass(target, start="lowered").passes(), make_context(), module)
        assert sum(isinstance(op, ResolvedOp) for op in module.walk()) == 1
    assert stripped(module) == first


def test_the_code_reads_global_memory_alone() -> None:
    """Loads behind predicates, without spills or calls."""
    _, unit = compiled(graph_of("average", "f16").module(), FORBID)
    (launch,) = (part for each in unit.launches for part in emitter(each.kernel)(each))
    assert isinstance(launch, KernelLaunch)
    (cubin,) = compile_kernels([launch.code], "sm_90a").values()
    assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)
