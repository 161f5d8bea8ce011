"""Kinds of training steps, written by hand, on a simulated GPU: what kernels of scalar programs make of them."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.dialects.types import element_named
from aicf.frontends.text import make_context
from aicf.passes.pipelines.text import parse_pipeline
from aicf.runtime.plan_from_ir import code_units, read_module
from aicf.universe import AICF_UNIVERSE
from tests.backends.cuda.simulator import Memory, run
from tests.passes.training_kinds import FAMILIES, Array, Case, gemm_epilogue_bwd
from tests.support.hand_written_kinds import expected_of, feeds_of, module_of

PIPELINE = (
    'set-target{target="cuda:sm_90a"},select-kernels,generate-kernels,verify-emit,schedule,decide-inplace,plan-memory,'
    "plan-capture,verify-emit,verify-order"
)
SCALAR_PROGRAMS = [family for family in FAMILIES if family is not gemm_epilogue_bwd]


def simulated(cases: list[Case]) -> dict[str, Array]:
    """The outputs of a program of the cases."""
    module = module_of(cases, align=16)
    context = make_context()
    for step in parse_pipeline(PIPELINE, AICF_UNIVERSE.all_passes):
        step.apply(context, module)
    (plan,) = read_module(module).programs
    (unit,) = code_units(module)
    assert {launch.kernel for launch in unit.launches} == {"cuda.generated"}
    launches = [part for launch in unit.launches for part in emitter(launch.kernel)(launch)]
    bases = {bind.name: base for base, bind in enumerate(plan.graph.binds, 1)}
    memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in plan.graph.binds)])
    for name, value in feeds_of(cases).items():
        memory.fill(bases[name], value)
    run([launch for launch in launches if isinstance(launch, KernelLaunch)], memory)
    binds = {bind.name: bind for bind in plan.graph.binds}
    return {
        name: memory.buffers[bases[name]]
        .view(element_named(binds[name].dtype).dtype)
        .reshape(binds[name].shape)
        for name in expected_of(cases)
    }


@pytest.mark.parametrize("seed", [5, 6])
def test_generated_kernels_compute_what_numpy_says(seed: int):
    rng = np.random.default_rng(seed)
    cases = [case for family in SCALAR_PROGRAMS for case in (family(rng), family(rng)) if case.one_kernel]
    results = simulated(cases)
    for name, expected in expected_of(cases).items():
        what = f"{cases[int(name.partition('.')[0])].kind}: {name}"
        np.testing.assert_allclose(results[name], expected, rtol=2e-5, atol=2e-5, err_msg=what)
