"""ONNX ops that compute each element from the elements at its place."""

from __future__ import annotations

import numpy as np

from tests.support.onnx_models import expect, expect_known


def test_add_broadcasts() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 3, 4)).astype(np.float32)
    b = rng.standard_normal((3, 1)).astype(np.float32)
    expect("Add", [a, b])
    expect("Add", [a, b], known=[1])
    expect_known("Add", [a, b])


def test_relu() -> None:
    expect("Relu", [np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)])
