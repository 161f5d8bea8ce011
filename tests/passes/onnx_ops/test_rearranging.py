"""ONNX ops that move blocks of elements against the reference implementation of package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import expect, one_node

Array = NDArray[Any]


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    x = floats(0, 2, 12, 3, 4)
    expect("DepthToSpace", [x], blocksize=2, mode=mode)


def test_space_to_depth() -> None:
    x = floats(1, 2, 3, 4, 6)
    taken = [x[:, :, i::2, j::2] for i in range(2) for j in range(2)]
    expect("SpaceToDepth", [x], blocksize=2, expected=[np.concatenate(taken, 1)])


@pytest.mark.parametrize("wanted", [[3, 4, 5], [5, 7, 2], [4, 2, 9], [6, 5, 8]], ids=str)
def test_center_crop_pad(wanted: list[int]) -> None:
    expect("CenterCropPad", [floats(2, 5, 4, 7), np.array(wanted)], known=[1])


def test_center_crop_pad_along_some_axes() -> None:
    expect("CenterCropPad", [floats(3, 5, 4, 7), np.array([9, 3])], known=[1], axes=[2, 0])


COLUMNS: dict[str, tuple[tuple[int, ...], list[int], list[int], dict[str, Any]]] = {
    "blocks": ((2, 12, 6), [4, 6], [2, 2], {"strides": [2, 2]}),
    "overlapping": ((1, 18, 12), [5, 6], [3, 3], {}),
    "padded": ((1, 4, 20), [4, 6], [2, 2], {"pads": [0, 1, 1, 0], "dilations": [1, 2]}),
    "three dimensions": ((1, 8, 24), [3, 4, 5], [2, 2, 2], {}),
}


@pytest.mark.parametrize("case", COLUMNS.values(), ids=COLUMNS)
def test_columns_to_image(case: tuple[tuple[int, ...], list[int], list[int], dict[str, Any]]) -> None:
    shape, image, kernel, attributes = case
    options = {"strides": [1] * len(image), "dilations": [1] * len(image), "pads": [0] * 2 * len(image)}
    x = floats(4, *shape)
    wanted = summed(x, image, kernel, **{**options, **attributes})
    expect(
        "Col2Im",
        [x, np.array(image), np.array(kernel)],
        known=[1, 2],
        expected=[wanted],
        atol=1e-5,
        **attributes,
    )


def summed(
    x: Array, image: list[int], kernel: list[int], strides: list[int], dilations: list[int], pads: list[int]
) -> Array:
    """Every element added where it belongs."""
    rank = len(image)
    counts = [
        (image[d] + pads[d] + pads[rank + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(rank)
    ]
    apart = x.reshape(len(x), -1, *kernel, *counts)
    result = np.zeros((len(x), apart.shape[1], *image), np.float32)
    for index in np.ndindex(*kernel, *counts):
        at = tuple(index[d] * dilations[d] + index[rank + d] * strides[d] - pads[d] for d in range(rank))
        if all(0 <= one < size for one, size in zip(at, image, strict=True)):
            result[(slice(None), slice(None), *at)] += apart[(slice(None), slice(None), *index)]
    return result


WRONG: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "channels": (
        "DepthToSpace",
        [floats(0, 1, 6, 2, 2)],
        {"blocksize": 2},
        "6 channels are no multiple of 2",
    ),
    "blocks": (
        "SpaceToDepth",
        [floats(0, 1, 1, 4, 3)],
        {"blocksize": 2},
        "4x3 elements are no blocks of 2x2",
    ),
    "crop": ("CenterCropPad", [floats(0, 4, 3), np.array([2])], {}, "shape has 1 values for 2 axes"),
    "columns": (
        *("Col2Im", [floats(0, 1, 4, 5), np.array([3, 3]), np.array([2, 2])], {}),
        r"4x5 columns are no windows of \[2, 2\] over an image of \[3, 3\]",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(case: tuple[str, list[Any], dict[str, Any], str]) -> None:
    op, operands, attributes, message = case
    model = one_node(op, operands, known=range(1, len(operands)), **attributes)
    with pytest.raises(InvalidIR, match=message):
        aicf.compile(model, target="cpu")
