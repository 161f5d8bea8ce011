"""Programs that read at computed indices, compiled for cuda: on a simulated GPU, and their machine code."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.records import integers
from aicf.backends.cuda.families.scatter import kernel as indexed_kernels
from aicf.frontends.builder.core import Value
from aicf.frontends.text import parse_module
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run
from tests.backends.cuda.test_generated_programs import compiled, simulated
from tests.support.indexing_programs import PROGRAMS, READS, WRITES, Inputs, built
from tests.support.random_graphs import run_program

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2, "f64": 1e-12}


CASES = [*((name, dtype) for name in READS for dtype in TOLERANCE), *((name, "f32") for name in WRITES)]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_programs_that_read_by_index(name: str, dtype: str) -> None:
    """Vectors, tails, guards and every way to make an index; indices out of range as the op says."""
    inputs = built(PROGRAMS[name], dtype)
    module = inputs.graph.module()
    exact = run_program(module.clone(), inputs.arrays)["y"]
    found = simulated(*compiled(module), inputs.arrays)["y"]
    scale = max(1.0, float(np.abs(exact).max()))
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0, atol=TOLERANCE[dtype] * scale)


def _pinned(kernel: str) -> str:
    """The policy that runs every scatter on one kernel."""
    return json.dumps({"kernels": {"scatter_combine": kernel}})


def _many_updates(inputs: Inputs) -> Value:
    """Rows of two digits, and more indices than a block of the sort takes."""
    operands = (inputs.data(300, 4), inputs.indices(300, 2100), inputs.data(2100, 4))
    return inputs.graph.scatter(*operands, "add")


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (WRITES["scatter-scalars"], "f32"),
        (WRITES["scatter-turned"], "f32"),
        (WRITES["scatter-wide"], "f16"),
        (WRITES["scatter-max"], "bf16"),
    ],
)
@pytest.mark.parametrize("kernel", ["cuda.scatter", "cuda.scatter_sorted"])
def test_scatters_that_combine(make: Callable[[Inputs], Value], dtype: str, kernel: str) -> None:
    """Rows of one element and of vectors, strided ones, and indices out of range, which count for nothing."""
    inputs = built(make, dtype)
    module = inputs.graph.module()
    exact = run_program(module.clone(), inputs.arrays)["y"]
    plan, unit = compiled(module, _pinned(kernel))
    assert kernel in [launch.kernel for launch in unit.launches]
    found = simulated(plan, unit, inputs.arrays)["y"]
    scale = max(1.0, float(np.abs(exact).max()))
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0, atol=TOLERANCE[dtype] * scale)


def test_updates_are_added_in_the_order_of_their_numbers() -> None:
    """To the bit, through two digits and several blocks of the sort."""
    inputs = built(_many_updates, "f32")
    operand, indices, updates = inputs.arrays.values()
    found = simulated(*compiled(inputs.graph.module(), _pinned("cuda.scatter_sorted")), inputs.arrays)["y"]
    rows = np.where(indices < 0, indices + len(operand), indices)
    for row, update in zip(rows, updates, strict=True):
        if 0 <= row < len(operand):
            operand[row] += update
    np.testing.assert_array_equal(found, operand)


def test_a_scatter_in_place_leaves_other_rows_alone() -> None:
    """The result lies on a state that it updates, whose rows without updates are neither read nor written."""
    module = parse_module(STATE)
    plan, unit = compiled(module, _pinned("cuda.scatter_sorted"))
    (launch,) = unit.launches
    assert launch.ins[0] == launch.outs[0]
    inputs = {"i": np.array([4, 1, -1, 9, 4]), "u": np.arange(10, dtype=np.float32).reshape(5, 2)}
    table = np.random.default_rng(3).standard_normal((5, 2)).astype(np.float32)
    binds = plan.graph.binds
    memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in binds)])
    for base, bind in enumerate(binds, 1):
        memory.fill(base, inputs.get(bind.name, table))
    (at,) = (base for base, bind in enumerate(binds, 1) if bind.role == "state")
    memory.written[at][:8] = False  # a read of row 0 fails
    run([part for part in emitter(launch.kernel)(launch) if isinstance(part, KernelLaunch)], memory)
    wanted = table.copy()
    for row, update in zip([4, 1, 4, 4], inputs["u"][[0, 1, 2, 4]], strict=True):
        wanted[row] += update
    np.testing.assert_array_equal(memory.buffers[at].view(np.float32).reshape(5, 2), wanted)
    assert not memory.written[at][:8].any()


STATE = """
func.func @f(%t : tensor<5x2xf32> {logical.name = "t", logical.role = "state"},
             %i : tensor<5xi64> {logical.name = "i", logical.role = "input"},
             %u : tensor<5x2xf32> {logical.name = "u", logical.role = "input"})
    -> (tensor<5x2xf32> {logical.updates = "t"}) {
  %0 = logical.scatter %t, %i, %u {mode = "add"} : (tensor<5x2xf32>, tensor<5xi64>, tensor<5x2xf32>) -> tensor<5x2xf32>
  func.return %0 : tensor<5x2xf32>
}
"""


def test_the_largest_of_a_row_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks, and one for the best of both; of equal elements the first ones."""
    monkeypatch.setattr(indexed_kernels, "_PART", 64)
    inputs = Inputs("i32")
    inputs.graph.output(inputs.graph.topk(inputs.data(1, 130), 3)[1], "y")
    module = inputs.graph.module()
    exact = run_program(module.clone(), inputs.arrays)["y"]
    plan, unit = compiled(module)
    assert unit.launches[0].record["parts"] == integers((2, 1))
    np.testing.assert_array_equal(simulated(plan, unit, inputs.arrays)["y"], exact)


def sass(inputs: Inputs) -> list[str]:
    """The instructions of the one kernel of a graph."""
    _, unit = compiled(inputs.graph.module())
    (launch,) = unit.launches
    parts = [part for part in emitter(launch.kernel)(launch) if isinstance(part, KernelLaunch)]
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
