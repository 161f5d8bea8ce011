"""Kinds of training steps, written by hand: generated kernels on a simulated GPU, and the code of products."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.backends.base import CodeUnit
from aicf.backends.cuda.compiler.build import emitter
from aicf.frontends.text import make_context
from aicf.passes.pipelines.text import parse_pipeline
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, read_module
from aicf.universe import AICF_UNIVERSE
from tests.backends.cuda.gemm_launches import compiled
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import simulated
from tests.passes.training_kinds import FAMILIES, Case, attributes, gemm_epilogue_bwd, normal
from tests.support.hand_written_kinds import expected_of, feeds_of, module_of

PIPELINE = (
    'set-target{target="cuda:sm_90a"},select-kernels,generate-kernels,verify-emit,schedule,decide-inplace,plan-memory,'
    "plan-capture,verify-emit,verify-order"
)
SCALAR_PROGRAMS = [family for family in FAMILIES if family is not gemm_epilogue_bwd]


def program_of(cases: list[Case]) -> tuple[CapturePlan, CodeUnit]:
    """The plan of a program of the cases, and what its code is made from."""
    module, context = module_of(cases, align=16), make_context()
    for step in parse_pipeline(PIPELINE, AICF_UNIVERSE.all_passes):
        step.apply(context, module)
    (plan,), (unit,) = read_module(module).programs, code_units(module)
    return plan, unit


@pytest.mark.parametrize("seed", [5, 6])
def test_generated_kernels_compute_what_numpy_says(seed: int):
    rng = np.random.default_rng(seed)
    cases = [case for family in SCALAR_PROGRAMS for case in (family(rng), family(rng)) if case.one_kernel]
    plan, unit = program_of(cases)
    assert {launch.kernel for launch in unit.launches} == {"cuda.generated"}
    results = simulated(plan, unit, feeds_of(cases))
    for name, expected in expected_of(cases).items():
        what = f"{cases[int(name.partition('.')[0])].kind}: {name}"
        np.testing.assert_allclose(results[name], expected, rtol=2e-5, atol=2e-5, err_msg=what)


def test_the_slope_of_an_activation_stays_in_registers():
    """It is the epilogue of the product's kernel; the longest of them spills nothing."""
    rng = np.random.default_rng(1)
    a, b, saved = normal(rng, 96, 64), normal(rng, 64, 128), normal(rng, 96, 128)
    attrs = attributes(transpose_a=False, transpose_b=False, activation="gelu_tanh")
    _, unit = program_of([Case("gemm_epilogue_bwd", attrs, [a, b, saved], [saved])])
    (launch,) = unit.launches
    assert launch.kernel == "cuda.gemm_simt"
    ((_, cubin),) = compiled(emitter(launch.kernel)(launch))
    assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)
