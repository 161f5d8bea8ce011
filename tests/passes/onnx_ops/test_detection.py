"""NonMaxSuppression of ONNX against the reference implementation of package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import UnsupportedOp
from tests.support.onnx_models import expect_known, one_node

Array = NDArray[Any]


def boxes(seed: int, batch: int, count: int, *, centred: bool) -> Array:
    """Boxes that often overlap; corners in any order."""
    random = np.random.default_rng(seed)
    if centred:
        return random.uniform(0.2, 1.0, (batch, count, 4)).astype(np.float32)
    return random.uniform(0.0, 1.0, (batch, count, 4)).astype(np.float32)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("limit", [2, 20])
def test_boxes_by_falling_scores(centred: int, limit: int) -> None:
    scores = np.random.default_rng(1).uniform(size=(2, 3, 12)).astype(np.float32)
    operands = [
        boxes(0, 2, 12, centred=bool(centred)),
        scores,
        np.array([limit]),
        np.array([0.3], np.float32),
        np.array([0.25], np.float32),
    ]
    expect_known("NonMaxSuppression", operands, center_point_box=centred)


def test_scores_of_the_running_program_are_refused() -> None:
    scores = np.random.default_rng(1).uniform(size=(1, 1, 6)).astype(np.float32)
    model = one_node("NonMaxSuppression", [boxes(2, 1, 6, centred=False), scores, np.array([3])], known=[2])
    with pytest.raises(
        UnsupportedOp, match=r"'node': boxes \(operand 0\) follows from input 'x0' at run time"
    ):
        aicf.compile(model, target="cpu")
