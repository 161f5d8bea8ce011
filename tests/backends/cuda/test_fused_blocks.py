"""Products with packed weights and what is before and after them in one kernel, without a GPU: float64 on simulated
threads, bits of a row, machine code, and refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.blocks.codegen import emit
from aicf.backends.cuda.families.blocks.kernel import MatmulBlocksKernel, read_schedule
from aicf.backends.cuda.families.blocks.layout import TileLayout
from aicf.backends.cuda.families.blocks.problem import BlocksProblem
from aicf.backends.cuda.families.blocks.schedule import choose, schedule_reason
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda import attention_simulator, simulator
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, listing, names_of, starting
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(55)
EPSILON = 1e-5
UNITS = {"f32": 2.0**-23, "bf16": 2.0**-8}
"""Of an element type in relation to a number."""
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
Array = np.ndarray


def mlp(scheme: str, rows: int, columns: int, inner: int, dtype: str = "f32") -> ModuleOp:
    """A norm, a gate and what it gates, then a product with a bias, to which x is added."""
    g = Graph("mlp")
    x = g.input("x", (rows, columns), dtype)
    normed = g.rms_norm(x, g.param("scale", (columns,), dtype), epsilon=EPSILON)
    gate, up = (_linear(g, name, scheme, normed, inner) for name in ("gate", "up"))
    down = _linear(g, "down", scheme, g.silu(gate) * up, columns)
    g.output(x + (down + g.param("bias", (columns,), dtype)), "y")
    return g.module()


def _linear(g: Graph, name: str, scheme: str, x: Value, rows: int) -> Value:
    stored, columns = BLOCK_SCHEMES[scheme], x.shape[-1]
    assert isinstance(columns, int)
    packed = g.param(name, (rows, columns // stored.length * stored.nbytes), "u8")
    weight = g.dequantize_blocks(packed, scheme)
    return g.linear(x, weight if x.dtype == "f32" else g.cast(weight, x.dtype))


def arrays_of(scheme: str, rows: int, columns: int, inner: int, dtype: str = "f32") -> dict[str, Array]:
    """Random operands."""
    sizes = {"gate": (inner, columns), "up": (inner, columns), "down": (columns, inner)}
    found = {name: random_rows(RNG, BLOCK_SCHEMES[scheme], *size) for name, size in sizes.items()}
    for name, size in {"x": (rows, columns), "scale": (columns,), "bias": (columns,)}.items():
        found[name] = RNG.standard_normal(size).astype(DTYPES[dtype])
    return found


def in_float64(scheme: str, arrays: Mapping[str, Array]) -> tuple[Array, Array, Array]:
    """The result of `mlp`, the sums of the magnitudes that its last product adds up, and of what these would be without
    anything that cancels."""
    wide = {
        name: widened(BLOCK_SCHEMES[scheme], array) if array.dtype == np.uint8 else array.astype(np.float64)
        for name, array in arrays.items()
    }
    x = wide["x"]
    normed = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * wide["scale"]
    gate = normed @ wide["gate"].T
    hidden = gate * (1 + np.tanh(gate / 2)) / 2 * (normed @ wide["up"].T)
    largest = np.abs(normed) @ np.abs(wide["gate"]).T * (np.abs(normed) @ np.abs(wide["up"]).T)
    down = np.abs(wide["down"]).T
    return x + (hidden @ wide["down"].T + wide["bias"]), np.abs(hidden) @ down, largest @ down


def compiled(module: ModuleOp, target: str = "cuda:sm_90a", policy: str = "") -> ModuleOp:
    AicfInferencePass(target, policy=policy).apply(make_context(), module)
    return module


def kinds_of(module: ModuleOp) -> list[str]:
    """Kinds of the instructions that multiply packed weights, in text order."""
    launches = [launch for unit in code_units(module) for launch in unit.launches]
    return [launch.kind for launch in launches if launch.kernel == MatmulBlocksKernel.id]


def run(module: ModuleOp, arrays: Mapping[str, Array]) -> Array:
    return simulated(module, arrays, partial(simulator.run, more=attention_simulator.names))["y"]


@pytest.mark.parametrize(
    ("scheme", "rows", "columns", "inner", "dtype"),
    [
        ("Q4_0", 1, 160, 96, "f32"),
        ("Q4_1", 3, 96, 64, "f32"),
        ("E4M3_128", 1, 128, 256, "bf16"),
        ("Q8_0", 5, 96, 32, "bf16"),
    ],
)
def test_a_gated_mlp(scheme: str, rows: int, columns: int, inner: int, dtype: str) -> None:
    """Two kernels: a norm and a gate, a product and what follows. Panels and tiles reach past the last row and column,
    rows past the last group of four, warps past the end of a row."""
    module = compiled(mlp(scheme, rows, columns, inner, dtype))
    assert kinds_of(module) == [PACKED_PRODUCTS] * 2
    arrays = arrays_of(scheme, rows, columns, inner, dtype)
    wanted, carried, largest = in_float64(scheme, arrays)
    error = np.abs(run(module, arrays).astype(np.float64) - wanted)
    assert (error <= 16 * UNITS["f32"] * largest + UNITS[dtype] * (np.abs(wanted) + carried)).all()


def test_bits_of_a_row_do_not_depend_on_the_other_rows() -> None:
    arrays = arrays_of("Q4_0", 4, 96, 64)
    whole = run(compiled(mlp("Q4_0", 4, 96, 64)), arrays)
    for rows in (slice(0, 1), slice(1, 3)):
        count = rows.stop - rows.start
        alone = run(compiled(mlp("Q4_0", count, 96, 64)), {**arrays, "x": arrays["x"][rows]})
        np.testing.assert_array_equal(alone, whole[rows])


def test_rounding_that_is_strict_keeps_the_rounded_weight() -> None:
    """What a narrow product multiplies is then the weight in its type, which no packed product has."""
    strict = compiled(mlp("Q8_0", 1, 64, 64, "bf16"), policy='{"rounding": "strict"}')
    assert not kinds_of(strict) and '"cuda.dequantize_blocks"' in str(strict)


# Machine code


@cache
def launches_of_a_model(scheme: str, rows: int = 1) -> dict[str, Launch]:
    """Those of the MLP of a Llama 1B in bf16: its gate, and its product back."""
    module = compiled(mlp(scheme, rows, 2048, 8192, "bf16"))
    found = [
        launch
        for unit in code_units(module)
        for launch in unit.launches
        if launch.kernel == "cuda.matmul_blocks"
    ]
    return dict(zip(("gate", "down"), found, strict=True))


@pytest.mark.parametrize(("scheme", "name"), [("Q4_0", "gate"), ("Q4_0", "down"), ("E4M3_128", "gate")])
def test_machine_code(scheme: str, name: str) -> None:
    """Nothing spills, codes are never converted by themselves, and before the wait each lane loads as many tiles as it
    has registers for, beside the scale of the norm."""
    launch = launches_of_a_model(scheme)[name]
    (made,) = emit(launch)
    cubin = compile_kernels([made.code], "sm_90a")[made.code.symbol]
    lines = listing(cubin)
    names = names_of(lines)
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)
    wait = next(number for number, line in enumerate(lines) if "ACQBULK" in line)
    streamed = [number for number, line in enumerate(lines) if re.search(r"LDG\.E\.NA.*\.128", line)]
    early = sum(number < wait for number in streamed)
    schedule = read_schedule(launch.record)
    assert early >= schedule.unroll and set(schedule.early) == {1, 2, 3} - (
        {2, 3} if name == "down" else set()
    )
    assert not starting(names, ("I2F",))


@pytest.mark.parametrize(("scheme", "most"), [("Q4_0", 3.0), ("E4M3_128", 3.5)])
def test_instructions_of_a_turn(scheme: str, most: float) -> None:
    """From one panel to the next a lane has so many for each weight, sums of all warps included. Memory leaves time for
    5.4 of Q4_0 and 9.6 of f8E4M3FN, at 3 TB/s, and kernels reach about half of what can be issued."""
    launch = launches_of_a_model(scheme)["gate"]
    (made,) = emit(launch)
    names = names_of(listing(compile_kernels([made.code], "sm_90a")[made.code.symbol]))
    products = [number for number, name in enumerate(names) if name.startswith("HMMA")]
    barriers = [number for number, name in enumerate(names) if name.startswith("BAR")]
    start = max(number for number in barriers if number < products[0])
    stop = min(number for number in barriers if number > products[-1])
    schedule = read_schedule(launch.record)
    assert schedule.parts * schedule.unroll * TileLayout(scheme).columns == 2048, (
        "a turn is one round of tiles"
    )
    assert stop - start <= most * 16 * 2048 / (32 * schedule.parts)


# Refusals


@pytest.mark.parametrize(
    ("rows", "policy", "is_fused"), [(16, "any", True), (65, "any", False), (65, "batch", True)]
)
def test_rows_that_take_along_what_is_around(rows: int, policy: str, is_fused: bool) -> None:
    """Few do. Where the batch may not show all do, in the order of one row."""
    text = '{"determinism": "batch_invariant"}' if policy == "batch" else ""
    assert (PACKED_PRODUCTS in kinds_of(compiled(mlp("Q4_0", rows, 64, 64), policy=text))) == is_fused


def test_schedules_that_cannot_be_carried_out() -> None:
    """A row program reads all of a row, and two weights take twice the warps."""
    problem, arch = BlocksProblem("Q4_0", 1, 64, 2048, products=2, has_rows=True), ARCHES["sm_90a"]
    chosen = choose(problem, arch, ())
    assert schedule_reason(chosen, problem, arch) is None
    reason = schedule_reason(replace(chosen, slice_tiles=8, unroll=1), problem, arch)
    assert "takes whole rows" in (reason or "")
    reason = schedule_reason(replace(chosen, groups=2), problem, arch)
    assert "4 panels of 8 warps each are more than 16 warps" in (reason or "")


@pytest.mark.parametrize("scheme", ["Q4_0", "E4M3_128", "U8_32"])
@pytest.mark.parametrize("columns", [512, 2048, 2560])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_whether_it_runs_and_in_which_order_follows_from_no_number_of_rows(
    scheme: str, columns: int, arch: str
) -> None:
    """Nor from the rows of the weights: the sums and extras of a block have room beside whole rows of x."""

    def problem(rows: int, outputs: int) -> BlocksProblem:
        return BlocksProblem(scheme, rows, outputs, columns, 2, True, 2)

    of_one = choose(problem(1, 8192), ARCHES[arch], ())
    assert schedule_reason(of_one, problem(1, 8192), ARCHES[arch]) is None
    for rows in range(1, 130):
        for outputs in (16, 8192):
            one = problem(rows, outputs)
            chosen = choose(one, ARCHES[arch], ())
            assert schedule_reason(chosen, one, ARCHES[arch]) is None, (rows, outputs)
            assert chosen.order(one) == of_one.order(problem(1, 8192))
