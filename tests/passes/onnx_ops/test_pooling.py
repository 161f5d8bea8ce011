"""ONNX's poolings against loops over their windows and planes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import expect, one_node
from tests.support.op_rows.pooling import ROWS

Array = NDArray[Any]


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ORACLES = {row.name: row.oracle for row in ROWS}

WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any], list[int], list[int]]] = {
    "one dimension": ((2, 3, 17), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}, [1], [0]),
    "two dimensions": (
        *((1, 3, 9, 11), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
        *([1, 0], [0, 1]),
    ),
    "three dimensions": (
        *((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
        *([0, 0, 0], [0, 0, 0]),
    ),
    "dilations": (
        *((1, 2, 9, 11), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [2, 1, 2, 1]}),
        *([2, 1], [2, 1]),
    ),
    "ceil mode": (
        *((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
        *([0, 0], [0, 0]),
    ),
    "same upper": (
        *((1, 2, 8, 9), {"kernel_shape": [4, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        *([1, 0], [1, 1]),
    ),
    "same lower": (
        *((1, 2, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        *([1, 1], [0, 0]),
    ),
    "valid": (
        *((1, 2, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "VALID"}),
        *([0, 0], [0, 0]),
    ),
}


def wanted(op: str, x: Array, case: tuple[Any, dict[str, Any], list[int], list[int]], **more: Any) -> Array:
    """By loops over the windows of a case."""
    _, attributes, low, high = case
    ones = [1] * (x.ndim - 2)
    found = ORACLES[op](
        x,
        sizes=attributes["kernel_shape"],
        strides=attributes.get("strides", ones),
        dilations=attributes.get("dilations", ones),
        low=low,
        high=high,
        ceil_mode=bool(attributes.get("ceil_mode", 0)),
        **more,
    )
    return found.astype(x.dtype)


@pytest.mark.parametrize("case", WINDOWS.values(), ids=WINDOWS)
def test_max_pool(case: tuple[tuple[int, ...], dict[str, Any], list[int], list[int]]) -> None:
    x = floats(0, *case[0])
    expect("MaxPool", [x], expected=[wanted("max_pool", x, case)], **case[1])


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("case", WINDOWS.values(), ids=WINDOWS)
def test_average_pool(
    case: tuple[tuple[int, ...], dict[str, Any], list[int], list[int]], included: bool
) -> None:
    x = floats(1, *case[0])
    mean = wanted("avg_pool", x, case, count_include_pad=included)
    expect("AveragePool", [x], expected=[mean], count_include_pad=int(included), **case[1])


@pytest.mark.parametrize("order", [0, 1])
def test_indices_of_largest_elements_in_the_whole_tensor(order: int) -> None:
    x = floats(2, 2, 3, 7, 6)
    found, indices = np.empty((2, 3, 3, 3), np.float32), np.empty((2, 3, 3, 3), np.int64)
    for n, c, i, j in np.ndindex(*indices.shape):
        window = x[n, c, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
        row, column = np.unravel_index(window.argmax(), window.shape)
        found[n, c, i, j] = window.max()
        row, column = row + 2 * i, column + 2 * j
        indices[n, c, i, j] = (n * 3 + c) * 42 + (row + 7 * column if order else row * 6 + column)
    windows = {"kernel_shape": [3, 2], "strides": [2, 2], "storage_order": order}
    expect("MaxPool", [x], 2, expected=[found, indices], **windows)


def test_largest_of_small_integers() -> None:
    x = np.random.default_rng(3).integers(-128, 128, (1, 2, 6, 7)).astype(np.int8)
    case = (x.shape, {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}, [1, 1], [0, 1])
    expect("MaxPool", [x], expected=[wanted("max_pool", x, case)], **case[1])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int) -> None:
    x = floats(4, 2, 3, 9, 5)
    padded = np.pad(np.abs(x), [(0, 0), (0, 0), (1, 1), (0, 1)])
    norms = np.empty((2, 3, 5, 3), np.float32)
    for i, j in np.ndindex(5, 3):
        window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
        norms[:, :, i, j] = (window.astype(np.float64) ** p).sum((2, 3)) ** (1 / p)
    expect("LpPool", [x], p=p, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], expected=[norms])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 4, 5, 6), (1, 2, 3, 4, 5)], ids=str)
def test_planes(op: str, shape: tuple[int, ...]) -> None:
    x = floats(5, *shape)
    combine = np.mean if op == "GlobalAveragePool" else np.max
    expect(op, [x], expected=[combine(x, axis=tuple(range(2, x.ndim)), keepdims=True)])


def test_norms_of_planes() -> None:
    x = floats(6, 2, 3, 5, 4)
    norms = (np.abs(x.astype(np.float64)) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    expect("GlobalLpPool", [x], p=3, expected=[norms.astype(np.float32)])


def test_elements_go_back_to_where_they_were_largest() -> None:
    x = floats(7, 2, 3, 3, 4)
    random = np.random.default_rng(8)
    rows, columns = 2 * np.arange(3)[:, None], 2 * np.arange(4)
    inside = random.integers(0, 2, (2, *x.shape))
    indices = (rows + inside[0]) * 8 + columns + inside[1] + 48 * np.arange(6).reshape(2, 3, 1, 1)
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    expect("MaxUnpool", [x, indices], **windows)
    expect("MaxUnpool", [x, indices, np.array([2, 3, 7, 9])], known=[2], **windows)


WRONG: dict[str, tuple[str, tuple[int, ...], dict[str, Any], str]] = {
    "no kernel": ("MaxPool", (1, 2, 3, 4), {}, "kernel_shape' is missing"),
    "rank": ("MaxPool", (2, 3), {"kernel_shape": [1]}, "operand 0 has rank 2"),
    "strides": (
        "MaxPool",
        (1, 2, 5),
        {"kernel_shape": [2], "strides": [0]},
        r"strides \[0\] is no list of 1",
    ),
    "pads": ("AveragePool", (1, 2, 5), {"kernel_shape": [2], "pads": [1]}, r"pads \[1\] is no list of 2"),
    "auto_pad": ("MaxPool", (1, 2, 5), {"kernel_shape": [2], "auto_pad": "SAME"}, "auto_pad is SAME; it is"),
    "too small": (
        "LpPool",
        (1, 2, 5),
        {"kernel_shape": [6]},
        "dimension 2 of 1x2x5 is smaller than a window",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(case: tuple[str, tuple[int, ...], dict[str, Any], str]) -> None:
    op, shape, attributes, message = case
    model = one_node(op, [floats(0, *shape)], **attributes)
    with pytest.raises(InvalidIR, match=message) as error:
        aicf.compile(model, target="cpu")
    assert "node" in str(error.value)
