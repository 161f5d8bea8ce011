"""ONNX's normalisations, against the reference implementation of package onnx, or where it has none against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf.errors import UnsupportedOp
from tests.support.onnx_models import Array, expect, expect_model, feeds, one_node

RNG = np.random.default_rng(12)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return RNG.uniform(0.5, 2.0, shape).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_an_axis(op: str, axis: int) -> None:
    expect(op, [normal(3, 4, 5)], opset=13, axis=axis)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("attributes", [{}, {"axis": 2}, {"axis": 0}])
def test_over_all_dimensions_from_an_axis_before_opset_13(op: str, attributes: dict[str, int]) -> None:
    x = normal(3, 4, 5)
    axis = attributes.get("axis", 1)
    rows = x.astype(np.float64).reshape(int(np.prod(x.shape[:axis])), -1)
    powers = np.exp(rows)
    share = powers / powers.sum(1, keepdims=True)
    expected = {
        "Softmax": share,
        "LogSoftmax": np.log(share),
        "Hardmax": rows == rows.max(1, keepdims=True),
    }[op]
    expect(op, [x], opset=11, expected=[expected.reshape(x.shape).astype(np.float32)], **attributes)


@pytest.mark.parametrize(
    ("axis", "scale", "bias"),
    [(-1, (6,), (6,)), (1, (4, 6), None), (-2, (6,), (4, 1)), (2, (4, 6), (3, 4, 6)), (0, (3, 4, 6), (6,))],
)
def test_layer_norm(axis: int, scale: tuple[int, ...], bias: tuple[int, ...] | None) -> None:
    inputs = [normal(3, 4, 6), normal(*scale)] + ([] if bias is None else [normal(*bias)])
    expect("LayerNormalization", inputs, 3, opset=17, axis=axis, epsilon=1e-3)


def test_layer_norm_says_which_stash_type_it_has_not() -> None:
    model = one_node("LayerNormalization", [normal(3, 4), normal(4)], opset=17, stash_type=11)
    with pytest.raises(
        UnsupportedOp, match=r"LayerNormalization 'node': stash_type is 11; only 1 \(f32\) is"
    ):
        aicf.compile(model)


@pytest.mark.parametrize(("axis", "scale"), [(-1, (6,)), (1, (6,)), (2, (4, 6))])
def test_rms_norm(axis: int, scale: tuple[int, ...]) -> None:
    expect("RMSNormalization", [normal(3, 4, 6), normal(*scale)], opset=23, axis=axis, epsilon=1e-3)


def test_rms_norm_gives_the_type_of_its_scale() -> None:
    x, scale = normal(3, 8).astype(np.float16), normal(8)
    wide = x.astype(np.float64)
    norm = (wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(np.float16)
    expected = norm.astype(np.float32) * scale
    expect("RMSNormalization", [x, scale], opset=23, expected=[expected], rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_batch_norm_with_given_statistics(shape: tuple[int, ...]) -> None:
    channels = [normal(3), normal(3), normal(3), positive(3)]
    expect("BatchNormalization", [normal(*shape), *channels], opset=15, epsilon=1e-2)


@pytest.mark.parametrize("opset", [9, 15])
def test_batch_norm_in_training(opset: int) -> None:
    x, scale, bias, mean, variance = normal(2, 3, 4, 5), normal(3), normal(3), normal(3), positive(3)
    wide = np.moveaxis(x.astype(np.float64), 1, -1).reshape(-1, 3)
    now, spread = wide.mean(0), wide.var(0)
    y = (wide - now) / np.sqrt(spread + 1e-2) * scale + bias
    running = [mean * 0.8 + now * 0.2, variance * 0.8 + spread * 0.2]
    expected = [np.moveaxis(y.reshape(2, 4, 5, 3), -1, 1), *running, *([now, spread] if opset == 9 else [])]
    attributes: dict[str, Any] = {} if opset == 9 else {"training_mode": 1}
    inputs = [x, scale, bias, mean, variance]
    options = {"epsilon": 1e-2, "momentum": 0.8, **attributes}
    model = one_node("BatchNormalization", inputs, len(expected), opset=opset, **options)
    expect_model(model, feeds(inputs), [array.astype(np.float32) for array in expected], training=True)


def test_batch_norm_of_statistics_in_another_type() -> None:
    x = normal(2, 3, 4).astype(np.float16)
    channels = [normal(3), normal(3), normal(3), positive(3)]
    scale, bias, mean, variance = (value.astype(np.float64)[:, None] for value in channels)
    expected = (x.astype(np.float64) - mean) / np.sqrt(variance + 1e-5) * scale + bias
    expect("BatchNormalization", [x, *channels], expected=[expected.astype(np.float16)], rtol=5e-3, atol=5e-3)


def test_instance_norm() -> None:
    expect("InstanceNormalization", [normal(2, 3, 4, 5), normal(3), normal(3)], epsilon=1e-2)


def test_group_norm() -> None:
    x, scale, bias = normal(2, 6, 5), normal(6), normal(6)
    wide = x.astype(np.float64).reshape(2, 3, 10)
    norm = ((wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-2)).reshape(
        2, 6, 5
    )
    expected = (norm * scale[:, None] + bias[:, None]).astype(np.float32)
    expect("GroupNormalization", [x, scale, bias], expected=[expected], num_groups=3, epsilon=1e-2)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_norm_is_zero_of_zeros(p: int, axis: int) -> None:
    x = normal(3, 4)
    x[1, :] = x[:, 2] = 0.0
    norm = np.linalg.norm(x.astype(np.float64), p, axis, keepdims=True)
    expected = np.divide(x, norm, out=np.zeros(x.shape), where=norm > 0).astype(np.float32)
    expect("LpNormalization", [x], expected=[expected], p=p, axis=axis)


@pytest.mark.parametrize("attributes", [{}, {"axes": [1, -1]}])
def test_mean_variance_norm(attributes: dict[str, Any]) -> None:
    x = normal(2, 3, 4, 5)
    axes = tuple(attributes.get("axes", (0, 2, 3)))
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True)
    expect("MeanVarianceNormalization", [x], expected=[expected.astype(np.float32)], **attributes)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_lrn(size: int) -> None:
    x = normal(2, 4, 3, 3)
    squares = x.astype(np.float64) ** 2
    total = np.zeros_like(squares)
    for channel in range(4):
        first, last = channel - (size - 1) // 2, channel + size // 2
        total[:, channel] = squares[:, max(first, 0) : last + 1].sum(1)
    expected = x / (1.5 + 0.2 / size * total) ** 0.6
    expect("LRN", [x], expected=[expected.astype(np.float32)], size=size, alpha=0.2, beta=0.6, bias=1.5)
