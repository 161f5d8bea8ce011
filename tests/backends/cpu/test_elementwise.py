"""Every elementwise op compiled for this machine, against its meaning in float64: random values and edges together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicf
from aicf.backends.cpu.target import check_host, level_named
from tests.support.elementwise_ops import CASES, NUMBERS, OPS, assert_same, edges, every_op, operands
from tests.support.random_graphs import run_program

SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)


def check(name: str, dtype: str, arrays: list[np.ndarray], target: str = "cpu") -> None:
    op = OPS[name]
    module = op.program(arrays[0].shape, dtype)
    inputs = {f"x{number}": array for number, array in enumerate(arrays)}
    found = np.asarray(aicf.compile(module, target=target)(inputs))
    assert_same(name, found, run_program(module, inputs)["y"], dtype)


@pytest.mark.parametrize("dtype", [*NUMBERS, "i1"])
def test_edges(dtype: str) -> None:
    """Every op in one program, every edge of one operand with every other of the second; the number of elements leaves
    a tail after full vectors."""
    grids = np.meshgrid(*[edges(dtype)] * 2)
    inputs = {f"x{number}": np.ascontiguousarray(grid).ravel() for number, grid in enumerate(grids)}
    module = every_op(inputs["x0"].shape, dtype)
    found = aicf.compile(module, target="cpu")(inputs)
    for (name, wanted), array in zip(run_program(module, inputs).items(), found, strict=True):
        assert_same(name, np.asarray(array), wanted, dtype)


@settings(deadline=None, max_examples=60)
@given(case=st.sampled_from(CASES), shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_random_shapes(case: tuple[str, str], shape: tuple[int, ...], seed: int) -> None:
    name, dtype = case
    check(name, dtype, operands(OPS[name].operands, dtype, shape, seed))


@pytest.mark.parametrize("name", ["sin", "cos", "pow", "expm1", "log1p", "softplus", "round", "mod"])
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v4"])
def test_other_levels(name: str, level: str) -> None:
    """What is longer code than one instruction, in vectors of other widths and without FMA."""
    try:
        check_host(level_named(level))
    except aicf.BackendUnavailable as error:
        pytest.skip(str(error))
    dtype = OPS[name].dtypes[0]
    check(name, dtype, operands(OPS[name].operands, dtype, (7, 33), 5), f"cpu:{level}")
