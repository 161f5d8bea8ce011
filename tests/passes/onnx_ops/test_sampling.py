"""GridSample and AffineGrid of ONNX against the reference implementation of package onnx."""

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


def random_grid(seed: int, *shape: int) -> Array:
    """Coordinates of which a third lie beyond the operand."""
    return np.random.default_rng(seed).uniform(-1.7, 1.7, shape).astype(np.float32)


PADDINGS = ("zeros", "border", "reflection")


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_samples_of_planes(mode: str, padding: str) -> None:
    """With both meanings of -1 and 1 for every mode and every padding."""
    align = (len(mode) + PADDINGS.index(padding)) % 2
    options = {"mode": mode, "padding_mode": padding, "align_corners": align}
    expect("GridSample", [floats(0, 2, 2, 5, 4), random_grid(1, 2, 3, 5, 2)], atol=1e-4, **options)


@pytest.mark.parametrize("padding", ["zeros", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_samples_of_volumes(mode: str, padding: str) -> None:
    options = {"mode": mode, "padding_mode": padding}
    expect("GridSample", [floats(2, 1, 2, 3, 4, 5), random_grid(3, 1, 2, 3, 2, 3)], atol=1e-4, **options)


def test_samples_along_a_plane_of_one_row() -> None:
    """A mirror whose borders meet."""
    options = {"mode": "linear", "padding_mode": "reflection", "align_corners": 1}
    x = floats(4, 1, 2, 1, 4)
    wanted = np.repeat(x, 3, 2)
    grid = np.stack(np.broadcast_arrays(np.linspace(-1, 1, 4), np.linspace(-3, 3, 3)[:, None]), -1)[None]
    expect("GridSample", [x, grid.astype(np.float32)], expected=[wanted], atol=1e-5, **options)


def test_modes_of_opset_16() -> None:
    grid = random_grid(5, 1, 2, 3, 2)
    found = [
        aicf.compile(one_node("GridSample", [floats(6, 1, 2, 4, 4), grid], opset=opset, mode=mode))(
            {"x0": floats(6, 1, 2, 4, 4), "x1": grid}
        )
        for opset, mode in ((16, "bilinear"), (20, "linear"))
    ]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("sizes", [[2, 3, 4, 5], [1, 2, 3, 4, 2]], ids=str)
def test_affine_grid(sizes: list[int], align: int) -> None:
    rank = len(sizes) - 2
    theta = floats(7, sizes[0], rank, rank + 1)
    expect("AffineGrid", [theta, np.array(sizes)], known=[1], align_corners=align, atol=1e-5)


WRONG: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], str]] = {
    "grid": ("GridSample", [(1, 2, 3, 4), (1, 2, 3, 3)], {}, r"the grid has shape \[1, 2, 3, 3\]"),
    "mode": ("GridSample", [(1, 2, 3, 4), (1, 2, 3, 2)], {"mode": "area"}, "mode is area and padding_mode"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(case: tuple[str, list[tuple[int, ...]], dict[str, Any], str]) -> None:
    op, shapes, attributes, message = case
    operands = [floats(0, *shape) for shape in shapes]
    with pytest.raises(InvalidIR, match=message):
        aicf.compile(one_node(op, operands, **attributes), target="cpu")
