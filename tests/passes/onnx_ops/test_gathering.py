"""ONNX ops that read at indices against the reference implementation of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import expect, expect_all

Array = NDArray[Any]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5, 6)).astype("f4")


def random_indices(size: int, *shape: int, dtype: str = "i8") -> Array:
    return RNG.integers(-size, size, shape).astype(dtype)


def test_gathers() -> None:
    inputs = [
        X,
        random_indices(4, 2, 3),
        random_indices(5, 7, dtype="i4"),
        np.array(-2),
        RNG.integers(0, 9, (4, 5)),
    ]
    uses = [("Gather", [0, 1], {}), ("Gather", [0, 2], {"axis": 1}), ("Gather", [0, 3], {"axis": -1})]
    expect_all([*uses, ("Gather", [4, 1], {})], inputs)


def test_gathers_of_elements() -> None:
    inputs = [X, random_indices(5, 4, 2, 6), random_indices(4, 7, 5, 6, dtype="i4")]
    expect_all([("GatherElements", [0, 1], {"axis": 1}), ("GatherElements", [0, 2], {})], inputs)


def test_gathers_at_indices_of_several_dimensions() -> None:
    inputs = [
        X,
        np.stack([random_indices(4, 3, 2), random_indices(5, 3, 2)], -1),
        random_indices(5, 4, 3, 1),
        random_indices(6, 4, 5, 1, dtype="i4"),
    ]
    inputs += [np.stack([random_indices(4, 2), random_indices(5, 2), random_indices(6, 2)], -1)]
    uses = [
        ("GatherND", [0, operand], {"batch_dims": batch})
        for operand, batch in ((1, 0), (2, 1), (3, 2), (4, 0))
    ]
    expect_all(uses, inputs)


def test_one_hot() -> None:
    inputs = [
        random_indices(7, 2, 3),
        np.array(7),
        np.array([-1.0, 2.0], "f4"),
        random_indices(7, 4).astype("f4"),
        np.array([0, 1]),
    ]
    uses = [("OneHot", [0, 1, 2], {"axis": axis}) for axis in (-1, 0, 1)]
    expect_all([*uses, ("OneHot", [3, 1, 4], {})], inputs, known=[1])


def test_compress() -> None:
    inputs = [X, RNG.random(5) > 0.5, RNG.random(80) > 0.5]
    uses = [("Compress", [0, 1], {"axis": 1}), ("Compress", [0, 1], {"axis": -2}), ("Compress", [0, 2], {})]
    expect_all(uses, inputs, known=[1, 2])


def test_known_indices() -> None:
    x = RNG.integers(-1, 2, (3, 4))
    expect("NonZero", [x], known=[0])
    expect("NonZero", [x > 0], known=[0])


@pytest.mark.parametrize("options", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 1}])
def test_unique(options: dict[str, int]) -> None:
    x = RNG.integers(0, 2, (4, 3)).astype("f4") if "axis" in options else RNG.integers(0, 5, 12)
    expect("Unique", [x], 4, known=[0], **options)


def test_indices_that_follow_from_data() -> None:
    x = RNG.integers(0, 5, 12)
    with pytest.raises(aicf.UnsupportedOp, match=r"Unique 'node': the number of .*run time"):
        expect("Unique", [x], expected=[])


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_sequences_in_reverse(axes: tuple[int, int]) -> None:
    x = RNG.normal(size=(4, 5, 2)).astype("f4")
    batch, time = axes
    lengths = RNG.integers(1, x.shape[time] + 1, x.shape[batch])
    expect("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=time)
