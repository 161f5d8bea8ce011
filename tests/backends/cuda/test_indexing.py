"""Programs that read at computed places, compiled for cuda: on a simulated GPU, and their machine code."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.backends.cuda.build import emitter
from aicf.backends.cuda.launches import KernelLaunch
from aicf.backends.cuda.toolchain import compile_kernels
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import ARCH, compiled, simulated
from tests.support.indexing_programs import PROGRAMS, READS, WRITES, Inputs, built
from tests.support.random_graphs import run_program

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2, "f64": 1e-12}


CASES = [*((name, dtype) for name in READS for dtype in TOLERANCE), *((name, "f32") for name in WRITES)]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_programs_that_know_places(name: str, dtype: str) -> None:
    """Vectors, tails, guards and every way to make an index; indices out of range as the op says."""
    inputs = built(PROGRAMS[name], dtype)
    module = inputs.graph.module()
    exact = run_program(module.clone(), inputs.arrays)["y"]
    found = simulated(*compiled(module), inputs.arrays)["y"]
    scale = max(1.0, float(np.abs(exact).max()))
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0, atol=TOLERANCE[dtype] * scale)


def sass(inputs: Inputs) -> list[str]:
    """The instructions of the one kernel of a graph."""
    _, unit = compiled(inputs.graph.module())
    (launch,) = unit.launches
    parts = [part for part in emitter(launch.kernel)(launch, ARCH) if isinstance(part, KernelLaunch)]
    (cubin,) = compile_kernels((part.code for part in parts), "sm_90a").values()
    return instructions(cubin)


def test_rows_of_a_table_are_read_sixteen_bytes_at_a_time() -> None:
    """A gather of f16 rows moves eight elements a load, and so does an aligned padding under one branch."""
    lookup = Inputs("f16")
    lookup.graph.output(lookup.graph.gather(lookup.data(512, 768), lookup.indices(512, 4096)), "y")
    padded = Inputs("f16")
    padded.graph.output(padded.graph.pad(padded.data(512, 768), [0, 8], [4, 16]), "y")
    for inputs in (lookup, padded):
        names = sass(inputs)
        assert "LDG.E.128" in names and "STG.E.128" in names
        assert not starting(names, SPILLS)
        assert not {"LDG.E.U16", "LDG.E"} & set(names)
