"""Kinds of training steps written by hand, on the GPU: what NumPy says in float64, at every replay in the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.passes.training_kinds import FAMILIES, Case
from tests.support.hand_written_kinds import expected_of, feeds_of, module_of

pytestmark = pytest.mark.gpu

WITHIN = 2e-5
"""Relative, and of numbers near 1: sums of tens of terms in f32."""


def drawn(seed: int) -> list[Case]:
    """Two cases of each family, those left out that take several kernels."""
    rng = np.random.default_rng(seed)
    return [case for family in FAMILIES for case in (family(rng), family(rng)) if case.one_kernel]


@pytest.mark.parametrize("seed", range(3))
def test_kinds_compute_what_numpy_says(seed: int) -> None:
    cases = drawn(seed)
    executable = aicf.compile(module_of(cases, align=16), None, "cuda:sm_90a")
    first, second = (executable.run(feeds_of(cases)) for _ in range(2))
    for name, expected in expected_of(cases).items():
        what = f"{cases[int(name.partition('.')[0])].kind}: {name}"
        np.testing.assert_allclose(first[name], expected, rtol=WITHIN, atol=WITHIN, err_msg=what)
        assert first[name].tobytes() == second[name].tobytes(), what
