"""The determinant against NumPy's, of matrices that need pivots."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.support.onnx_models import expect


@pytest.mark.parametrize("size", [1, 2, 4])
def test_determinants(size: int) -> None:
    x = np.random.default_rng(size).normal(size=(2, 3, size, size))
    x[0, 0, 0, 0] = 0  # no pivot of its own
    x[1, 1, :, -1] = x[1, 1, :, 0]
    expect("Det", [x], expected=[np.linalg.det(x)], rtol=1e-10, atol=1e-12)


def test_permutations_have_a_sign() -> None:
    x = np.stack([np.eye(4, dtype="f4")[order] for order in ([1, 0, 2, 3], [3, 0, 1, 2], [1, 2, 0, 3])])
    expect("Det", [x], expected=[np.array([-1, -1, 1], "f4")])


def test_a_matrix_that_is_not_square() -> None:
    with pytest.raises(aicf.InvalidIR, match="it holds square matrices"):
        expect("Det", [np.ones((3, 4), "f4")], expected=[])


def test_a_matrix_of_many_rows() -> None:
    with pytest.raises(
        aicf.UnsupportedOp, match="Det 'node': matrices have 40 rows; up to 32 are eliminated here"
    ):
        expect("Det", [np.ones((40, 40), "f4")], expected=[])
