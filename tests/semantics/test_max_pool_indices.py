"""Where the maxima of windows lie, for windows of one element along some dims, against a walk over all windows."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.support.op_rows.pooling import max_pool_indices

RNG = np.random.default_rng(331)


@pytest.mark.parametrize("sizes", [[3, 1], [1, 3], [2, 1, 1], [1, 2, 1], [3, 2], [1, 1]])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_windows_of_one_element_along_a_dim(target: str, sizes: list[int]) -> None:
    x = RNG.standard_normal((2, 3, *(5, 6, 4)[: len(sizes)])).astype(np.float32)
    ones, zeros = [1] * len(sizes), [0] * len(sizes)
    windows = {"sizes": sizes, "strides": ones, "dilations": ones, "low": zeros, "high": zeros}
    g = aicf.Graph("indices")
    g.output(g.max_pool_indices(g.input("x", x.shape), **windows), "y")
    expected = max_pool_indices(x, **windows, ceil_mode=False)
    np.testing.assert_array_equal(aicf.compile(g, {}, target)(x), expected)
