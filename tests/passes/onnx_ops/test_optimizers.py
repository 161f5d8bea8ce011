"""The optimizer steps of ai.onnx.preview.training, of one tensor and of two, in the first step and later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import expect

RNG = np.random.default_rng(14)


@pytest.mark.parametrize(
    ("op", "states", "attributes"),
    [
        ("Adagrad", 1, {"decay_factor": 0.1, "epsilon": 1e-3, "norm_coefficient": 0.05}),
        ("Momentum", 1, {"alpha": 0.9, "beta": 0.3, "mode": "standard", "norm_coefficient": 0.0}),
        ("Momentum", 1, {"alpha": 0.9, "beta": 0.3, "mode": "nesterov", "norm_coefficient": 0.01}),
        (
            "Adam",
            2,
            {
                "alpha": 0.8,
                "beta": 0.95,
                "epsilon": 1e-3,
                "norm_coefficient": 0.01,
                "norm_coefficient_post": 0.1,
            },
        ),
    ],
)
@pytest.mark.parametrize("count", [0, 3])
def test_optimizer(op: str, states: int, attributes: dict[str, Any], count: int) -> None:
    shapes = ((3,), (2, 4))
    values = [RNG.uniform(0.1, 1.0, shape).astype(np.float32) for _ in range(2 + states) for shape in shapes]
    inputs = [np.float32(0.1).reshape(()), np.int64(count).reshape(()), *values]
    expect(op, inputs, 2 * (1 + states), opset=1, domain="ai.onnx.preview.training", **attributes)
