"""Slice and Pad against the reference implementation of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import Use, expect, expect_all

Array = NDArray[Any]
X = np.random.default_rng(0).normal(size=(5, 6, 7)).astype("f4")
SLICES = (
    ([1, 2], [4, 6]),
    ([-3], [9], [-1]),
    ([4, 5], [-9, 0], [0, 2], [-1, -2]),
    ([5, 0], [0, 7], [1, 2], [-3, 3]),
    ([0], [2**62], [1], [2]),
    ([-1], [-(2**62)], [2], [-1]),
)


def list_of(numbers: list[int], dtype: str = "i8") -> Array:
    return np.array(numbers, dtype)


def test_slices() -> None:
    inputs, uses = [X], list[Use]()
    for lists in SLICES:
        uses.append(("Slice", [0, *range(len(inputs), len(inputs) + len(lists))], {}))
        inputs += map(list_of, lists)
    expect_all(uses, inputs, known=range(1, len(inputs)))


def test_slices_by_attributes() -> None:
    expect("Slice", [X], opset=9, starts=[1, -3], ends=[4, 9], axes=[0, 2], expected=[X[1:4, :, -3:9]])


def test_steps_are_not_zero() -> None:
    with pytest.raises(aicf.InvalidIR, match="no step is 0"):
        lists = map(list_of, ([0], [3], [0], [0]))
        expect("Slice", [X, *lists], known=[1, 2, 3, 4], expected=[])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pads(mode: str) -> None:
    """More than the operand has of elements to reflect, nothing along an axis, and elements taken away."""
    x = np.random.default_rng(1).normal(size=(3, 4, 2)).astype("f4")
    rows = ([2, 0, 1, 1, 3, 0], [5, 0, 3, 7, 0, 1], [0, 1, 0, 2, 0, 0])
    inputs = [x, *map(list_of, rows)]
    uses: list[Use] = [("Pad", [0, number + 1], {"mode": mode}) for number in range(len(rows))]
    expect_all(uses, inputs, known=range(1, len(inputs)))


def test_pads_that_take_away() -> None:
    x = np.random.default_rng(2).normal(size=(4, 5)).astype("f4")
    expect("Pad", [x, list_of([-1, 2, 0, -3])], known=[1], expected=[np.pad(x[1:, :2], ((0, 0), (2, 0)))])


def test_pads_with_a_value_along_some_axes() -> None:
    x = np.random.default_rng(3).integers(0, 9, (3, 4))
    operands = [x, list_of([1, 2]), np.array(7), list_of([-1])]
    expect("Pad", operands, known=[1, 3])
    expect("Pad", [x > 4, list_of([1, 0, 0, 2]), np.array(True)], known=[1])


def test_pads_by_attributes() -> None:
    x = np.random.default_rng(4).normal(size=(2, 3)).astype("f4")
    expect(
        "Pad",
        [x],
        opset=10,
        pads=[1, 0, 0, 2],
        value=0.5,
        expected=[np.pad(x, ((1, 0), (0, 2)), constant_values=0.5)],
    )
    with pytest.raises(aicf.InvalidIR, match="mode is 'mirror'; use one of constant, reflect, wrap, edge"):
        expect("Pad", [x], opset=10, pads=[0, 0, 0, 0], mode="mirror", expected=[])


def test_a_walk_back_begins_at_the_first_element_at_least() -> None:
    """By the text of the op; the reference slices as NumPy does, where nothing is left."""
    x = np.array([3.0, 4.0, 5.0], "f4")
    lists = map(list_of, ([-9], [-8], [0], [-1]))
    expect("Slice", [x, *lists], known=[1, 2, 3, 4], expected=[x[:1]])
