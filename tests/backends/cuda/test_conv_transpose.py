"""Transposed convolutions whose phases are launches, or matrices of one product: on a simulated GPU in both layouts,
their legality, and their machine code."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda import simulator, tile_simulator, wgmma_simulator
from tests.backends.cuda.integer_simulator import Run, simulated
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import compiled
from tests.gpu.transposed import Transposed, drawn, inner

Array = NDArray[Any]

MMA, WGMMA = "cuda.conv_transpose_mma", "cuda.conv_transpose_wgmma"
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
ROUNDED = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""What rounding a result changes at most, of 1."""


def values(case: Transposed, seed: int) -> dict[str, Array]:
    """Random operands in the order of their dimensions."""
    random = np.random.default_rng(seed)
    shapes = {
        "x": (case.batch, case.channels, *case.sizes),
        "weight": (case.channels, case.outputs, *case.taps),
    }
    return {name: random.standard_normal(shape).astype(TYPES[case.dtype]) for name, shape in shapes.items()}


def transposed(case: Transposed, x: Array, weight: Array) -> Array:
    """Each element times the weight, added to its window, in f64."""
    reach = [
        (size - 1) * stride + tap
        for size, stride, tap in zip(case.sizes, case.strides, case.taps, strict=True)
    ]
    room = [max(end, low + count) for end, low, count in zip(reach, case.low, case.counts, strict=True)]
    total = np.zeros((case.batch, case.outputs, *room))
    for index in np.ndindex(*case.sizes):
        at = tuple(
            slice(i * stride, i * stride + tap)
            for i, stride, tap in zip(index, case.strides, case.taps, strict=True)
        )
        total[(..., *at)] += np.tensordot(x[(..., *index)], weight, axes=(1, 0))
    kept = tuple(slice(low, low + count) for low, count in zip(case.low, case.counts, strict=True))
    return total[(..., *kept)]


SEEDS = {MMA: (0, 1, 5, 6, 7), WGMMA: (0, 1, 3, 5)}
RUN: dict[str, Run] = {
    MMA: lambda launches, memory: simulator.run(launches, memory, tile_simulator.names),
    WGMMA: wgmma_simulator.run,
}


@pytest.mark.parametrize(
    ("kernel", "seed"), [(kernel, seed) for kernel, seeds in SEEDS.items() for seed in seeds]
)
def test_drawn_convolutions(kernel: str, seed: int) -> None:
    """Against window after window in float64."""
    case = drawn(seed, bulk=kernel == WGMMA)
    given = values(case, seed)
    exact = transposed(case, *(value.astype(np.float64) for value in given.values()))
    magnitude = transposed(case, *(np.abs(value.astype(np.float64)) for value in given.values()))
    module = case.graph().module()
    AicfInferencePass("cuda:sm_90a", policy=json.dumps({"kernels": {"up": kernel}})).apply(
        make_context(), module
    )
    order = inner(exact.ndim) if case.is_last else range(exact.ndim)
    lying = {name: np.ascontiguousarray(value.transpose(order)) for name, value in given.items()}
    (found,) = simulated(module, lying, RUN[kernel]).values()
    away = np.abs(found.astype(np.float64) - exact.transpose(order))
    allowed = ROUNDED[case.dtype] * np.abs(exact) + 2.0**-20 * magnitude + 2.0**-24
    assert (away <= allowed.transpose(order)).all()


# Legality

UP = Transposed("bf16", 32, 128, 128, (28, 28), (3, 3), (2, 2), (1, 1), (1, 1), True)
"""What the second stage of a residual network passes back to the first."""


@pytest.mark.parametrize(
    ("changes", "kernel"),
    [
        ({}, WGMMA),
        ({"channels": 12}, MMA),
        ({"extra": (0, 1)}, MMA),
        ({"taps": (1, 3), "low": (0, 1)}, "cuda.conv_wgmma"),
        ({"strides": (5, 4), "taps": (5, 4), "low": (0, 0)}, "cuda.conv_wgmma"),
    ],
)
def test_who_runs_it(changes: dict[str, Any], kernel: str) -> None:
    """Copies need channels in whole 16 bytes, and phases of one size; without one of these each phase has a launch.
    Elements in no window and too many phases leave the formula."""
    _, unit = compiled(replace(UP, **changes).graph().module(), "")
    assert kernel in {launch.kernel for launch in unit.launches}


def test_a_weight_that_stays_is_packed_ahead() -> None:
    """Its outputs are put side by side once."""
    g = Graph("packed")
    x = g.transpose(g.neg(g.input("x", (2, 8, 8, 64), "f16")), [0, 3, 1, 2])
    weight, bias = g.param("weight", (64, 32, 2, 2), "f16"), g.param("bias", (32,), "f16")
    y = g.conv_transpose(x, weight, bias, strides=[2, 2], name="up")
    g.output(g.transpose(y, [0, 2, 3, 1]), "y")
    module = g.module()
    _, unit = compiled(module, json.dumps({"kernels": {"up": WGMMA}}))
    assert WGMMA in {launch.kernel for launch in unit.launches}
    assert "cuda.pack_windows" in {launch.kernel for each in code_units(module) for launch in each.launches}


# Machine code


def cubins_of(case: Transposed, kernel: str) -> list[Cubin]:
    """The code of its launches."""
    _, unit = compiled(case.graph().module(), json.dumps({"kernels": {"up": kernel}}))
    (launch,) = (launch for launch in unit.launches if launch.kernel == kernel)
    parts = [part for part in emitter(kernel)(launch) if isinstance(part, KernelLaunch)]
    return list(compile_kernels([part.code for part in parts], "sm_90a").values())


def test_one_launch_multiplies_all_phases() -> None:
    """By warpgroups, out of copies of windows and of the weight where it lies; nothing spills."""
    (cubin,) = cubins_of(UP, WGMMA)
    names = instructions(cubin)
    assert starting(names, ("HGMMA",)) and starting(names, ("UTMALDG.4D.IM2COL", "UTMALDG.3D"))
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


def test_each_phase_is_a_convolution() -> None:
    """Tensor cores multiply; nothing spills."""
    for cubin in cubins_of(replace(UP, batch=2, taps=(2, 2), low=(0, 0), extra=(0, 0), strides=(1, 2)), MMA):
        names = instructions(cubin)
        assert starting(names, ("HMMA",)) and cubin.stack_bytes == 0 and not starting(names, SPILLS)
