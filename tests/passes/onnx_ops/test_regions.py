"""RoiAlign of ONNX against the reference implementation of package onnx, MaxRoiPool against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import InvalidIR, UnsupportedOp
from tests.support.onnx_models import expect, one_node

Array = NDArray[Any]


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ROIS = np.array([[0.5, 1.0, 7.0, 8.5], [2.0, 0.0, 2.5, 0.25], [-4.0, 3.0, 15.0, 13.0]], np.float32)


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str, coordinates: str) -> None:
    expect(
        "RoiAlign",
        [floats(8, 2, 3, 9, 10), ROIS, np.array([1, 0, 1])],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        output_height=2,
        output_width=3,
        sampling_ratio=2,
        spatial_scale=0.75,
        atol=1e-5,
    )


def test_points_that_follow_from_regions_are_refused() -> None:
    model = one_node("RoiAlign", [floats(9, 2, 3, 9, 10), ROIS, np.array([1, 0, 1])])
    with pytest.raises(UnsupportedOp, match="sampling_ratio 0 takes a number of points that follows from"):
        aicf.compile(model, target="cpu")


def test_largest_of_cells_of_regions() -> None:
    x = floats(9, 2, 3, 9, 12)
    rois = np.array([[0, 2, 4, 17, 11], [1, 0, 0, 22, 17], [1, 5, 5, 6, 6], [0, 21, 15, 40, 30]], np.float32)
    largest = np.zeros((4, 3, 2, 3), np.float32)
    for region, (batch, *borders) in enumerate(rois):
        left, top, right, bottom = (int(np.floor(border / 2 + 0.5)) for border in borders)
        height, width = max(bottom - top + 1, 1) / 2, max(right - left + 1, 1) / 3
        for i, j in np.ndindex(2, 3):
            across = slice(left + int(j * width), left + int(np.ceil((j + 1) * width)))
            down = slice(top + int(i * height), top + int(np.ceil((i + 1) * height)))
            cell = x[int(batch), :, down, across]
            if cell.size:
                largest[region, :, i, j] = cell.max((1, 2))
    expect("MaxRoiPool", [x, rois], pooled_shape=[2, 3], spatial_scale=0.5, expected=[largest])


def test_a_mode_that_is_none_is_refused() -> None:
    operands = [floats(0, 1, 2, 3, 4), ROIS, np.array([0, 0, 0])]
    with pytest.raises(InvalidIR, match="mode is sum; it is avg or max"):
        aicf.compile(one_node("RoiAlign", operands, sampling_ratio=1, mode="sum"), target="cpu")


def test_cells_go_along_two_dimensions() -> None:
    model = one_node("MaxRoiPool", [floats(0, 1, 2, 5, 5), floats(1, 2, 5)], pooled_shape=[2])
    with pytest.raises(InvalidIR, match="pooled_shape is no list of two integers"):
        aicf.compile(model, target="cpu")
