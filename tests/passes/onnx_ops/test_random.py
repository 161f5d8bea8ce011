"""Dropout and random numbers: what is kept, how often, and that a node always draws the same."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.support.onnx_models import Array, expect, feeds, one_node

RNG = np.random.default_rng(18)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [7, 10, 13])
def test_dropout_keeps_all_at_inference(opset: int) -> None:
    x = normal(3, 4)
    mask = np.ones(x.shape, np.float32 if opset == 7 else np.bool_)
    expect("Dropout", [x], 2, opset=opset, expected=[x, mask])


@pytest.mark.parametrize("known", [(1, 2), ()])
def test_dropout_in_training(known: tuple[int, ...]) -> None:
    x = normal(100, 200)
    inputs = [x, np.float32(0.3).reshape(()), np.array(True)]
    model = one_node("Dropout", inputs, 2, known=known, opset=13, seed=5)
    exe = aicf.compile(model, training=True)
    y, mask = exe.run(feeds(inputs, known)).values()
    np.testing.assert_allclose(y, np.where(mask, x / 0.7, 0), rtol=1e-6)
    assert abs(mask.mean() - 0.7) < 0.02
    assert np.array_equal(exe.run(feeds(inputs, known))["y1"], mask)
    if not known:
        y, mask = exe.run({**feeds(inputs), "x2": np.array(False)}).values()
        assert mask.all()
        np.testing.assert_array_equal(y, x)


def test_dropout_in_training_mode_keeps_all_in_evaluation() -> None:
    x = normal(4, 5)
    inputs = [x, np.float32(0.3).reshape(()), np.array(True)]
    expect("Dropout", inputs, 2, known=(1, 2), opset=13, expected=[x, np.ones(x.shape, np.bool_)])


def test_bernoulli() -> None:
    chance = RNG.random((300, 100), np.float32)
    first, other = (
        aicf.compile(one_node("Bernoulli", [chance], opset=15, seed=seed, dtype=6))(chance)
        for seed in (1.0, 2.0)
    )
    assert first.dtype == np.int32
    assert set(np.unique(first)) == {0, 1}
    for quarter in range(4):
        inside = (chance >= quarter / 4) & (chance < (quarter + 1) / 4)
        assert abs(first[inside].mean() - chance[inside].mean()) < 0.02
    assert 0.2 < (first != other).mean() < 0.45


@pytest.mark.parametrize(
    ("op", "attributes", "mean", "deviation"),
    [
        ("RandomUniform", {"low": -2.0, "high": 4.0}, 1.0, 6 / 12**0.5),
        ("RandomNormal", {"mean": 3.0, "scale": 0.5}, 3.0, 0.5),
    ],
)
@pytest.mark.parametrize("like", [False, True])
def test_random_numbers(
    op: str, attributes: dict[str, float], mean: float, deviation: float, like: bool
) -> None:
    inputs = [normal(100, 300)] if like else []
    shape = {} if like else {"shape": [100, 300]}
    model = one_node(op + "Like" * like, inputs, opset=13, seed=3.0, **shape, **attributes)
    exe = aicf.compile(model)
    sample = exe.run(feeds(inputs))["y0"]
    assert (sample.dtype, sample.shape) == (np.float32, (100, 300))
    assert abs(sample.mean() - mean) < 0.05
    assert abs(sample.std() - deviation) < 0.05
    assert np.array_equal(exe.run(feeds(inputs))["y0"], sample)
    if op == "RandomUniform":
        assert -2.0 <= sample.min() < -1.9
        assert 3.9 < sample.max() < 4.0
