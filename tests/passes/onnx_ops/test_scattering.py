"""ONNX ops that write at indices against the reference implementation of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import expect, expect_all

Array = NDArray[Any]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype("f4")
REDUCTIONS = ("none", "add", "mul", "max", "min")


def test_scatters_of_elements() -> None:
    """Several updates meet, but where one of them would have to stay."""
    inputs = [X, RNG.integers(-4, 4, (3, 5)), RNG.normal(size=(3, 5)).astype("f4")]
    inputs += [np.stack([RNG.permutation(5)[:3] for _ in range(4)]) - 2, RNG.normal(size=(4, 3)).astype("f4")]
    met = [("ScatterElements", [0, 1, 2], {"reduction": reduction}) for reduction in REDUCTIONS[1:]]
    expect_all([*met, ("ScatterElements", [0, 3, 4], {"axis": -1})], inputs)


def test_the_older_scatter() -> None:
    indices = np.stack([RNG.permutation(5)[:2] for _ in range(4)])
    updates = RNG.normal(size=(4, 2)).astype("f4")
    wanted = X.copy()
    np.put_along_axis(wanted, indices, updates, 1)
    expect("Scatter", [X, indices, updates], opset=10, axis=1, expected=[wanted])


def test_scatters_at_indices_of_several_dimensions() -> None:
    inputs = [X, np.array([[1], [-4], [1]]), RNG.normal(size=(3, 5)).astype("f4")]
    inputs += [np.array([[0, 1], [3, -1]]), RNG.normal(size=(2,)).astype("f4")]
    uses = [("ScatterND", [0, 1, 2], {"reduction": reduction}) for reduction in REDUCTIONS[1:]]
    expect_all([*uses, ("ScatterND", [0, 3, 4], {})], inputs)


@pytest.mark.parametrize("dtype", ["i8", "u1", "f2"])
def test_products_of_other_types(dtype: str) -> None:
    x = RNG.integers(1, 4, (6,)).astype(dtype)
    inputs = [x, np.array([1, 1, -6, 1]), RNG.integers(1, 4, (4,)).astype(dtype)]
    expect("ScatterElements", inputs, reduction="mul")


def test_an_unknown_reduction() -> None:
    with pytest.raises(aicf.InvalidIR, match="reduction is 'xor'; use one of none, add, mul, max, min"):
        expect("ScatterElements", [X, np.zeros((1, 5), "i8"), X[:1]], reduction="xor", expected=[])


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_updates_of_a_cache(mode: str) -> None:
    cache, update = RNG.normal(size=(3, 2, 6, 4)).astype("f4"), RNG.normal(size=(3, 2, 3, 4)).astype("f4")
    first = np.array([0, 3, 2]) if mode == "linear" else np.array([5, 1, 4])
    expect("TensorScatter", [cache, update, first], opset=24, mode=mode)
    expect("TensorScatter", [cache, update], opset=24, mode=mode)
