"""Elementwise ops on ``reference`` and compiled for this machine against PyTorch: random shapes, types and edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicf
from tests.support.elementwise_ops import CASES, OPS, operands
from tests.support.random_graphs import run_program
from tests.support.torch_elementwise import TORCH, assert_like_theirs, defined, theirs_of

pytestmark = pytest.mark.peers


def test_every_op_has_a_peer() -> None:
    assert TORCH.keys() == OPS.keys()


@settings(deadline=None, max_examples=150)
@given(
    case=st.sampled_from(CASES),
    shape=st.lists(st.integers(1, 9), max_size=3).map(tuple),
    seed=st.integers(0, 2**32 - 1),
)
def test_same_answer(case: tuple[str, str], shape: tuple[int, ...], seed: int) -> None:
    name, dtype = case
    arrays = defined(name, dtype, operands(OPS[name].operands, dtype, shape, seed))
    theirs = theirs_of(name, arrays)
    module = OPS[name].program(shape, dtype)
    inputs = {f"x{number}": array for number, array in enumerate(arrays)}
    assert_like_theirs(run_program(module, inputs, "typed")["y"], theirs, dtype)
    assert_like_theirs(np.asarray(aicf.compile(module, target="cpu")(inputs)), theirs, dtype)
