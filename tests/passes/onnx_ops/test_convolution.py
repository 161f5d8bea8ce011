"""ONNX's convolutions against the reference implementation of package onnx, or sums written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import AicfError
from tests.support.onnx_models import expect, one_node
from tests.support.op_rows.convolution import spread

Array = NDArray[Any]


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one dimension": ((2, 3, 9), (4, 3, 3), {}),
    "two dimensions": ((2, 3, 9, 8), (4, 3, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "three dimensions": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), {"dilations": [1, 2, 1]}),
    "groups": ((1, 6, 7, 7), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "a channel each": ((1, 5, 9, 7), (10, 1, 3, 3), {"group": 5, "strides": [2, 2]}),
    "same upper": ((1, 2, 8, 7), (3, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same lower": ((1, 2, 8, 7), (3, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    "valid": ((1, 2, 8, 7), (3, 2, 4, 3), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_conv(case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], bias: bool) -> None:
    x, weight, attributes = case
    operands = [floats(0, *x), floats(1, *weight), *([floats(2, weight[0])] if bias else [])]
    expect("Conv", operands, known=range(1, len(operands)), kernel_shape=weight[2:], atol=1e-5, **attributes)


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], dict[str, Any]]] = {
    "one dimension": ((2, 3, 5), (3, 2, 3), {"strides": [2]}, {}),
    "apart": ((1, 3, 4, 5), (3, 2, 2, 2), {"strides": [2, 2]}, {}),
    "overlapping": (
        *((1, 3, 4, 5), (3, 2, 3, 3)),
        *({"strides": [2, 1], "pads": [1, 0, 1, 1]}, {"low": [1, 0], "high": [1, 1]}),
    ),
    "output padding": (
        *((1, 3, 4, 5), (3, 2, 3, 3)),
        *({"strides": [3, 2], "output_padding": [2, 1]}, {"extra": [2, 1]}),
    ),
    "output shape": (
        *((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [3, 2], "output_shape": [11, 10]}),
        {"low": [1, 1], "high": [0, 0]},
    ),
    "more than all windows": (
        *((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [3, 2], "output_shape": [13, 11]}),
        {"extra": [1, 0]},
    ),
    "same": (
        *((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        {"high": [1, 1]},
    ),
    "dilations": ((1, 3, 4, 5), (3, 2, 2, 3), {"dilations": [2, 2]}, {}),
    "groups": ((1, 4, 4, 5), (4, 3, 2, 3), {"group": 2, "strides": [1, 2]}, {}),
}


@pytest.mark.parametrize("case", TRANSPOSED.values(), ids=TRANSPOSED)
def test_conv_transpose(
    case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], dict[str, Any]],
) -> None:
    """Padding that follows from other attributes is written out beside them."""
    x, weight, attributes, padding = case
    groups, rank = attributes.get("group", 1), len(x) - 2
    operands = [floats(0, *x), floats(1, *weight), floats(2, weight[1] * groups)]
    lists = {name: attributes.get(name, [1] * rank) for name in ("strides", "dilations")}
    none = {name: padding.get(name, [0] * rank) for name in ("low", "high", "extra")}
    wanted = spread(*(operand.astype(np.float64) for operand in operands), **lists, **none, groups=groups)
    expected = [wanted.astype(np.float32)]
    expect("ConvTranspose", operands, known=[1, 2], expected=expected, atol=1e-5, **attributes)


def _sums(x: Array, w: Array, pad: int) -> Array:
    """A convolution of integers with a stride of 1, output by output."""
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    height, width = (x.shape[axis] - w.shape[axis] + 1 for axis in (2, 3))
    result = np.empty((len(x), len(w), height, width), np.int64)
    for n, m, i, j in np.ndindex(*result.shape):
        result[n, m, i, j] = (x[n, :, i : i + w.shape[2], j : j + w.shape[3]] * w[m]).sum()
    return result


def test_conv_integer() -> None:
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 256, (1, 3, 6, 5), np.uint8), rng.integers(-128, 128, (4, 3, 3, 3), np.int8)
    x_zero, w_zero = np.uint8(7), rng.integers(-9, 9, 4, np.int8)
    wanted = _sums(x.astype(np.int64) - 7, w - w_zero.astype(np.int64).reshape(-1, 1, 1, 1), 1)
    operands = [x, w, np.asarray(x_zero), w_zero]
    expect("ConvInteger", operands, known=[1, 3], expected=[wanted.astype(np.int32)], pads=[1, 1, 1, 1])


def test_quantized_conv() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.integers(0, 256, (2, 3, 6, 5), np.uint8), rng.integers(-128, 128, (4, 3, 3, 3), np.int8)
    scales = rng.uniform(0.01, 0.02, 4).astype(np.float32)
    bias = rng.integers(-500, 500, 4, np.int32)
    y_scale, y_zero = np.float32(0.83), np.uint8(128)
    sums = _sums(x.astype(np.int64) - 120, w.astype(np.int64), 1) + bias.reshape(1, -1, 1, 1)
    scaled = sums * (np.float64(np.float32(0.04)) * scales / y_scale).reshape(1, -1, 1, 1)
    wanted = np.clip(np.round(scaled) + 128, 0, 255).astype(np.uint8)
    keep = np.abs(scaled - np.floor(scaled) - 0.5) > 1e-4
    assert keep.all(), "no value of this seed lies where f32 may round it otherwise"
    operands = [
        *(x, np.float32(0.04), np.uint8(120), w, scales, np.zeros(4, np.int8)),
        *(np.float32(y_scale), y_zero, bias),
    ]
    operands = [np.asarray(operand) for operand in operands]
    expect("QLinearConv", operands, known=range(1, 9), expected=[wanted], pads=[1, 1, 1, 1])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"kernel_shape": [2, 2]}, r"Conv 'node': kernel_shape is \[2, 2\], the weight has \[3, 3\]"),
        ({"pads": [1, 1]}, r"Conv 'node': pads \[1, 1\] is no list of 4 numbers"),
        ({"strides": [1]}, r"Conv 'node': strides \[1\] is no list of 2 numbers"),
        (
            {"auto_pad": "SAME"},
            "Conv 'node': auto_pad is SAME; it is NOTSET, VALID, SAME_UPPER or SAME_LOWER",
        ),
        ({"group": 3}, "Conv 'node': .* has 2 channels"),
    ],
)
def test_what_is_wrong_with_a_convolution(attributes: dict[str, Any], message: str) -> None:
    model = one_node("Conv", [floats(0, 1, 2, 5, 5), floats(1, 3, 2, 3, 3)], **attributes)
    with pytest.raises(AicfError, match=message):
        aicf.compile(model, target="reference")
