"""NonMaxSuppression of ONNX against package onnx, and at run time against float64."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import aicf
from aicf.errors import UnsupportedOp
from aicf.inference import InferenceSession
from tests.support.onnx_models import expect_known, feeds, one_node
from tests.support.op_rows.detection import OVERLAPS, boxes_on_a_grid, scores_with_ties, suppressed

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


@settings(max_examples=5)
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 12)),
    limit=st.integers(0, 14),
    thresholds=st.tuples(st.sampled_from(OVERLAPS), st.sampled_from((None, -1.0, 0.0, 0.5))),
    centred=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_boxes_of_the_running_program(
    shape: tuple[int, int, int],
    limit: int,
    thresholds: tuple[float, float | None],
    centred: bool,
    seed: int,
) -> None:
    """Scores that are equal, NaN or infinite, boxes with a NaN, and no box at all, against float64."""
    samples, _, count = shape
    random = np.random.default_rng(seed)
    corners = boxes_on_a_grid(random, (samples, count), centred=centred).astype(np.float32)
    scores = scores_with_ties(random, shape).astype(np.float32)
    numbers = [None if number is None else np.array(number, np.float32) for number in thresholds]
    operands = [corners, scores, np.array([limit]), *numbers]
    wanted = np.empty((0, 3), np.int64)
    if limit:
        exact = [None if number is None else np.float64(number) for number in numbers]
        kept = suppressed(
            corners.astype(np.float64), scores.astype(np.float64), *exact, limit=limit, centred=centred
        )
        wanted = np.array([[*row[:2], kept[tuple(row)]] for row in np.argwhere(kept >= 0)], np.int64)
    for known in ([2], [0, 1, 2, 3, 4]):
        model = one_node("NonMaxSuppression", operands, known=known, center_point_box=int(centred))
        for device in ("reference", "cpu"):
            with InferenceSession(model, device=device) as session:
                found = session.run(feeds(operands, known))["y0"]
            np.testing.assert_array_equal(found, wanted.reshape(-1, 3))
            assert found.dtype == np.int64


def cases_of_the_standard() -> dict[str, Any]:
    """Of package onnx, which notes them where the module of the op is imported."""
    import_module("onnx.backend.test.case.node.nonmaxsuppression")
    noted = import_module("onnx.backend.test.case.node")._NodeTestCases
    return {case.name: case for case in noted if "nonmaxsuppression" in case.name}


CASES = cases_of_the_standard()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_cases_of_the_standard(name: str, device: str) -> None:
    """Boxes, scores and thresholds are inputs; a session follows the number of boxes that are wanted."""
    case = CASES[name]
    with InferenceSession(case.model, device=device) as session:
        for inputs, (wanted,) in case.data_sets:
            (found,) = session.run(list(inputs)).values()
            np.testing.assert_array_equal(found, wanted)


def test_how_many_are_wanted_is_known() -> None:
    scores = np.random.default_rng(1).uniform(size=(1, 1, 6)).astype(np.float32)
    model = one_node("NonMaxSuppression", [boxes(2, 1, 6, centred=False), scores, np.array([3])])
    with pytest.raises(
        UnsupportedOp, match=r"'node': max_output_boxes_per_class \(operand 2\) follows from input 'x2'"
    ):
        aicf.compile(model, target="cpu")
