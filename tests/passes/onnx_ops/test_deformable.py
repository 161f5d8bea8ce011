"""DeformConv: without offsets a convolution, with them the reference implementation of onnx."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.support.onnx_models import expect, one_node


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


@pytest.mark.parametrize("groups", [1, 2])
def test_moved_coordinates(groups: int) -> None:
    operands = [normal(2, 4, 6, 7), normal(4, 4 // groups, 3, 2, seed=1), 2 * normal(2, 24, 4, 4, seed=2)]
    options = {"strides": [2, 2], "pads": [1, 0, 2, 1], "dilations": [1, 1]}
    rest = {"group": groups, "offset_group": 2, "kernel_shape": [3, 2]}
    expect("DeformConv", operands, opset=19, rtol=1e-4, atol=1e-5, **options, **rest)
    operands += [normal(4, seed=3), normal(2, 12, 4, 4, seed=4)]
    expect("DeformConv", operands, opset=22, rtol=1e-4, atol=1e-5, **options, **rest)


def test_coordinates_that_are_not_moved() -> None:
    x, weight = normal(1, 3, 5, 5), normal(2, 3, 3, 3, seed=1)
    conv = aicf.compile(one_node("Conv", [x, weight], dilations=[2, 1], pads=[1, 1, 1, 1]), target="cpu")
    wanted = conv({"x0": x, "x1": weight})
    offset = np.zeros((1, 18, *wanted.shape[2:]), "f4")
    expect(
        "DeformConv", [x, weight, offset], dilations=[2, 1], pads=[1, 1, 1, 1], expected=[wanted], atol=1e-5
    )


def test_an_offset_of_another_kernel() -> None:
    operands = [normal(1, 1, 4, 4), normal(1, 1, 2, 2), normal(1, 6, 3, 3)]
    with pytest.raises(aicf.InvalidIR, match="it has 8 numbers for each place"):
        expect("DeformConv", operands, expected=[])
