"""ONNX ops that combine elements along axes against the reference implementation of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import Use, expect, expect_all

Array = NDArray[Any]
NAMES = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
OF_INTEGERS = ("ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 5e-6), ("f8", 1e-12), ("f2", 4e-3)])
def test_reductions_of_floats(dtype: str, tolerance: float) -> None:
    x = RNG.uniform(0.5, 1.5, (3, 4, 5)).astype(dtype)
    inputs = [x, np.array([1]), np.array([-1, 0])]
    uses: list[Use] = []
    for name in NAMES:
        uses += [(name, [0], {}), (name, [0, 1], {"keepdims": 0}), (name, [0, 2], {})]
    expect_all(uses, inputs, known=[1, 2], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_reductions_of_integers(dtype: str) -> None:
    x = RNG.integers(-9, 9, (3, 4, 5)).astype(dtype)
    uses: list[Use] = [(name, [0, 1], {}) for name in OF_INTEGERS]
    expect_all(uses, [x, np.array([0, 2])], known=[1])
    # The reference gives i64.
    expect("ReduceSumSquare", [x], expected=[(x * x).sum(keepdims=True).astype(dtype)])


def test_a_mean_of_integers_is_cut_off() -> None:
    expect(
        "ReduceMean",
        [np.array([[1, 2], [-1, -2]])],
        opset=13,
        axes=[1],
        keepdims=0,
        expected=[np.array([1, -1])],
    )


def test_reductions_of_truth_values() -> None:
    x = RNG.random((3, 4)) > 0.5
    expect_all([("ReduceMax", [0, 1], {}), ("ReduceMin", [0, 1], {})], [x, np.array([1])], known=[1])


def test_axes_that_are_attributes() -> None:
    x = RNG.uniform(0.5, 1.5, (3, 4)).astype("f4")
    expect_all([(name, [0], {"axes": [1], "keepdims": 0}) for name in NAMES], [x], opset=11)


def test_no_axes_may_mean_no_reduction() -> None:
    x, none = RNG.uniform(0.5, 1.5, (3, 4)).astype("f4"), np.array([], "i8")
    expect("ReduceSum", [x, none], known=[1], noop_with_empty_axes=1, expected=[x])
    expect("ReduceSumSquare", [x], noop_with_empty_axes=1, expected=[x * x])
    expect("ReduceSum", [x, none], known=[1], expected=[x.sum(keepdims=True)])


def test_a_sum_of_squares_of_f16_that_overflows_on_the_way() -> None:
    x = np.full((2, 4), 200.0, "f2")
    expect("ReduceL2", [x, np.array([1])], known=[1], expected=[np.full((2, 1), 400.0, "f2")])


def test_indices_of_extremes() -> None:
    x = RNG.integers(0, 4, (5, 6, 7)).astype("f4")
    options = ({}, {"axis": 1, "keepdims": 0}, {"axis": -1, "select_last_index": 1})
    expect_all([(name, [0], given) for name in ("ArgMax", "ArgMin") for given in options], [x])


@pytest.mark.parametrize("dtype", ["f4", "i8", "f2"])
def test_the_k_largest(dtype: str) -> None:
    x, k = RNG.permutation(60).reshape(3, 4, 5).astype(dtype), np.array([3])
    expect("TopK", [x, k], 2, known=[1])
    expect("TopK", [x, k], 2, known=[1], axis=1, largest=0)
    expect("TopK", [x], 2, opset=9, k=2, expected=[-np.sort(-x)[..., :2], np.argsort(-x)[..., :2]])
    with pytest.raises(aicf.InvalidIR, match="k is 9; axis 2 of .* has 5 elements"):
        expect("TopK", [x, np.array([9])], 2, known=[1], expected=[])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_running_sums_and_products(dtype: str) -> None:
    x = RNG.integers(-3, 4, (3, 7, 2)).astype(dtype)
    flags = [{"exclusive": exclusive, "reverse": reverse} for exclusive in (0, 1) for reverse in (0, 1)]
    inputs = [x, np.array(1), np.array(-1)]
    uses: list[Use] = [("CumSum", [0, axis], given) for given in flags for axis in (1, 2)]
    expect_all(uses, inputs, known=[1, 2])
    uses = [("CumProd", [0, 1], given) for given in flags]
    expect_all(uses, inputs[:2], known=[1], opset=26)


def test_axes_out_of_range() -> None:
    with pytest.raises(aicf.InvalidIR, match="axis 5 is out of range for rank 2; it is -2 to 1"):
        expect("ReduceSum", [np.ones((2, 3), "f4"), np.array([5])], known=[1], expected=[])
