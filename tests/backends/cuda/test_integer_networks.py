"""Quantised networks through the whole pipeline for cuda, run on simulated threads: every byte is that of the
semantics."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import read_module
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.integer_simulator import simulated
from tests.gpu.cases import CASES
from tests.support.random_graphs import run_program


@pytest.mark.parametrize("name", ["int8-convolutional", "int8-transformer"])
def test_bytes_are_those_of_the_semantics(name: str) -> None:
    """Products are of integers without a policy that asks for it; what attention makes of floats is close."""
    program = CASES[name].make()
    wanted = run_program(program.module, program.arrays)
    AicfInferencePass("cuda:sm_90a").apply(make_context(), program.module)
    (plan,) = read_module(program.module).programs
    assert sum(launch.kernel.endswith("_int8") for launch in plan.launches) == 3
    found = simulated(program.module, program.arrays, wgmma_simulator.run)
    for output, exact in wanted.items():
        if found[output].dtype.kind == "f":
            np.testing.assert_allclose(found[output], exact, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(found[output], exact)
