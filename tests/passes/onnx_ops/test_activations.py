"""ONNX activations against the reference implementation of onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import expect, expect_all

USES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Celu", {}),
    ("Celu", {"alpha": 0.5}),
    ("Elu", {}),
    ("Elu", {"alpha": 2.0}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", {}),
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("Mish", {}),
    ("Selu", {}),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}),
    ("Shrink", {}),
    ("Shrink", {"lambd": 0.25, "bias": 0.125}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Swish", {}),
    ("Swish", {"alpha": 1.5}),
    ("ThresholdedRelu", {}),
    ("ThresholdedRelu", {"alpha": 0.25}),
)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-6), ("f8", 2e-7), ("f2", 3e-3)])
def test_activations(dtype: str, tolerance: float) -> None:
    """The reference computes those of f64 with attributes that were rounded to f32, and some functions in f32."""
    x = (np.random.default_rng(0).normal(size=(5, 7)) * 3).astype(dtype)
    expect_all(
        [(name, [0], attributes) for name, attributes in USES], [x], opset=24, rtol=tolerance, atol=tolerance
    )


def test_prelu() -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(2, 3, 4)).astype("f4"), rng.normal(size=(3, 1)).astype("f4")]
    inputs += [rng.integers(-9, 9, (2, 3, 4)), rng.integers(-9, 9, (4,))]
    expect_all([("PRelu", [0, 1], {}), ("PRelu", [2, 3], {})], inputs)


def test_shrinking_integers() -> None:
    x = np.random.default_rng(2).integers(-9, 9, (4, 5)).astype("i4")
    wanted = np.where(x < -3, x + 2, np.where(x > 3, x - 2, 0)).astype("i4")
    expect("Shrink", [x], lambd=3.0, bias=2.0, expected=[wanted])
