"""ONNX's Resize and Upsample against the reference implementation of package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import InvalidIR, UnsupportedOp
from tests.support.onnx_models import expect, one_node

Array = NDArray[Any]

MODES = ("nearest", "linear", "cubic")
COORDINATE_MODES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def resize(x: Array, *, scales: Any = None, sizes: Any = None, roi: Any = None, **attributes: Any) -> None:
    """A node whose sizes are constants of the model."""
    operands = [
        x,
        None if roi is None else np.array(roi, np.float32),
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes, np.int64),
    ]
    known = [number for number, operand in enumerate(operands) if number and operand is not None]
    expect("Resize", operands, known=known, atol=1e-5, **attributes)


@pytest.mark.parametrize("coordinates", COORDINATE_MODES)
@pytest.mark.parametrize("mode", MODES)
def test_where_elements_lie(mode: str, coordinates: str) -> None:
    roi = [0, 0, 0.1, -0.2, 1, 1, 0.8, 1.1] if coordinates == "tf_crop_and_resize" else None
    options = {"mode": mode, "coordinate_transformation_mode": coordinates, "extrapolation_value": 2.5}
    resize(floats(0, 1, 2, 5, 6), sizes=[1, 2, 7, 4], roi=roi, **options)
    resize(floats(1, 1, 2, 5, 6), scales=[1, 1, 0.6, 2.3], roi=roi, **options)
    if mode == "linear":  # where the one element lies follows from the coordinates alone
        resize(floats(2, 1, 2, 5, 6), sizes=[1, 2, 1, 1], roi=roi, **options)


@pytest.mark.parametrize("mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(mode: str) -> None:
    x = floats(3, 1, 2, 4, 6)
    resize(x, scales=[1, 1, 2, 0.5], nearest_mode=mode)
    resize(x, scales=[1, 1, 1.5, 3], nearest_mode=mode, coordinate_transformation_mode="asymmetric")
    resize(x, sizes=[1, 2, 9, 5], nearest_mode=mode, coordinate_transformation_mode="align_corners")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("exclude", [0, 1])
def test_weights(mode: str, antialias: int, exclude: int) -> None:
    options = {"mode": mode, "antialias": antialias, "exclude_outside": exclude}
    resize(floats(4, 2, 3, 11, 13), sizes=[2, 3, 3, 20], **options)
    resize(floats(5, 2, 3, 12), scales=[1, 1, 0.4], cubic_coeff_a=-0.5, **options)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_policies_of_sizes(policy: str) -> None:
    resize(floats(6, 1, 2, 6, 8), sizes=[9, 10], axes=[2, 3], keep_aspect_ratio_policy=policy, mode="linear")
    resize(floats(7, 6, 1, 8), sizes=[3, 5], axes=[2, 0], keep_aspect_ratio_policy=policy)


def test_tables_longer_than_a_constant() -> None:
    resize(floats(8, 1, 1, 2, 700), sizes=[1, 1, 3, 1500], mode="linear")
    resize(floats(9, 1, 1, 2, 700), sizes=[1, 1, 3, 1500])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.int32])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_element_types(dtype: Any, mode: str) -> None:
    x = np.random.default_rng(10).integers(0, 100, (1, 2, 4, 5)).astype(dtype)
    sizes = [1, 2, 8, 10] if mode == "nearest" else [1, 2, 7, 9]
    expect(
        "Resize",
        [x, None, None, np.array(sizes)],
        known=[3],
        mode=mode,
        coordinate_transformation_mode="align_corners" if np.dtype(dtype).kind in "iu" else "half_pixel",
        atol=1.0 if np.dtype(dtype).kind in "iu" else 0.1,
        rtol=0,
    )


def test_older_opsets() -> None:
    x, scales = floats(11, 1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)
    taken = np.repeat(np.repeat(x, 2, 2), 3, 3)
    expect("Resize", [x, scales], known=[1], opset=10, expected=[taken])
    expect("Upsample", [x, scales], known=[1], opset=9, expected=[taken])
    expect("Upsample", [x], opset=7, scales=[1.0, 1.0, 2.0, 3.0], expected=[taken])


WRONG: dict[str, tuple[dict[int, Any], dict[str, Any], str]] = {
    "neither": ({}, {}, "neither scales nor sizes are given"),
    "count": ({2: [1, 2]}, {}, "scales has 2 values for 4 axes"),
    "scale": ({2: [1, 1, 0, 1]}, {}, "are above 0 each"),
    "mode": ({3: [1, 2, 3, 3]}, {"mode": "quadratic"}, "mode is quadratic; it is nearest, linear or cubic"),
    "place": (
        {3: [1, 2, 3, 3]},
        {"coordinate_transformation_mode": "pixel"},
        "coordinate_transformation_mode is pixel; it is half_pixel, .* or tf_crop_and_resize",
    ),
    "nearest": ({3: [1, 2, 3, 3]}, {"nearest_mode": "up"}, "nearest_mode is up; it is round_prefer_floor, "),
    "policy": ({3: [1, 2, 3, 3]}, {"keep_aspect_ratio_policy": "wide"}, "keep_aspect_ratio_policy is wide"),
    "region": (
        {1: [0, 1], 3: [1, 2, 3, 3]},
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "roi has 2 values for 4 axes",
    ),
}
TYPES = {1: np.float32, 2: np.float32, 3: np.int64}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(case: tuple[dict[int, Any], dict[str, Any], str]) -> None:
    given, attributes, message = case
    operands = [
        floats(0, 1, 2, 4, 4),
        *(np.array(given[number], TYPES[number]) if number in given else None for number in (1, 2, 3)),
    ]
    model = one_node("Resize", operands, known=[1, 2, 3], **attributes)
    with pytest.raises(InvalidIR, match=message):
        aicf.compile(model, target="cpu")


def test_sizes_are_known_when_the_program_is_made() -> None:
    model = one_node("Resize", [floats(0, 1, 2, 4, 4), None, None, np.array([1, 2, 3, 3])])
    with pytest.raises(UnsupportedOp, match=r"sizes \(operand 3\) follows from input 'x3' at run time"):
        aicf.compile(model, target="cpu")
