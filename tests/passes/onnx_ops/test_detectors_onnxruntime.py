"""Detectors: a small one, and its suppression of boxes alone, against ONNX Runtime on random data with ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from aicf.inference import InferenceSession
from tests.support.onnx_models import Array, feeds, one_node
from tests.support.op_rows.detection import OVERLAPS, boxes_on_a_grid

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers


def theirs(model: onnx.ModelProto, given: dict[str, Array]) -> Sequence[Any]:
    model.ir_version = min(model.ir_version, 10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)


def expect_equal(model: onnx.ModelProto, given: dict[str, Array], rtol: float) -> None:
    """The same shapes, types and values; whole numbers to the bit."""
    wanted = theirs(model, given)
    with InferenceSession(model, device="cpu") as session:
        found = session.run(given)
    for name, expected in zip([output.name for output in model.graph.output], wanted, strict=True):
        assert (found[name].dtype, found[name].shape) == (expected.dtype, expected.shape), name
        np.testing.assert_allclose(found[name], expected, rtol, rtol, err_msg=name)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(
        st.integers(1, 3), st.integers(1, 4), st.integers(1, 40) | st.sampled_from((33, 600, 1100))
    ),
    limit=st.integers(0, 45),
    overlap=st.sampled_from(OVERLAPS),
    floor=st.sampled_from((None, -1.0, 0.25, 0.5)),
    centred=st.booleans(),
    on_a_grid=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_non_max_suppression(
    shape: tuple[int, int, int],
    limit: int,
    overlap: float,
    floor: float | None,
    centred: bool,
    on_a_grid: bool,
    seed: int,
) -> None:
    """Few different scores, some of them infinite, so that ties decide; of NaN nothing is promised there."""
    samples, _, count = shape
    random = np.random.default_rng(seed)
    boxes = random.random((samples, count, 4))
    if on_a_grid:
        boxes = np.nan_to_num(boxes_on_a_grid(random, (samples, count), centred=centred), nan=0.5)
    scores = random.choice([np.inf, -np.inf, 0.0, 0.25, 0.5, 0.75, -1.0], shape)
    operands = [
        boxes.astype(np.float32),
        scores.astype(np.float32),
        np.array([limit]),
        np.array([overlap], np.float32),
        None if floor is None else np.array([floor], np.float32),
    ]
    model = one_node("NonMaxSuppression", operands, known=[2], opset=11, center_point_box=int(centred))
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    expect_equal(model, feeds(operands, [2]), 0)


def detector(random: np.random.Generator) -> onnx.ModelProto:
    """A convolution that gives four numbers and three scores at each index; its best boxes, with scores and classes."""
    weight = (random.standard_normal((7, 3, 3, 3)) * 0.4).astype(np.float32)
    constants = {
        "weight": weight,
        "bias": random.standard_normal(7).astype(np.float32),
        "flat": np.array([1, 7, -1]),
        "parts": np.array([4, 3]),
        "limit": np.array([5]),
        "overlap": np.array([0.3], np.float32),
        "floor": np.array([0.2], np.float32),
        "first": np.array(0),
        "class": np.array([1]),
        "box": np.array([2]),
        "last": np.array([-1]),
        "front": np.array([0]),
        "ends": np.array([2**60]),
        "scale": np.array([2.0, 2.0, 2.0, 2.0], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "weight", "bias"], ["map"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["map"], ["scaled"]),
        helper.make_node("Reshape", ["scaled", "flat"], ["places"]),
        helper.make_node("Split", ["places", "parts"], ["sides", "scores"], axis=1),
        helper.make_node("Transpose", ["sides"], ["boxes"], perm=[0, 2, 1]),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "limit", "overlap", "floor"],
            ["selected"],
            center_point_box=1,
        ),
        helper.make_node("GatherND", ["scores", "selected"], ["kept_scores"]),
        helper.make_node("Slice", ["selected", "box", "ends", "class"], ["column"]),
        helper.make_node("Squeeze", ["column", "class"], ["numbers"]),
        helper.make_node("Gather", ["boxes", "numbers"], ["kept"], axis=1),
        helper.make_node("Squeeze", ["kept", "front"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["kept_boxes"]),
        helper.make_node("Gather", ["selected", "class"], ["class_column"], axis=1),
        helper.make_node("Cast", ["class_column"], ["kept_class"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept_scores", "last"], ["score_column"]),
        helper.make_node("Concat", ["kept_boxes", "score_column", "kept_class"], ["found"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, 9, 11])],
        [
            helper.make_tensor_value_info("found", onnx.TensorProto.FLOAT, ["boxes", 6]),
            helper.make_tensor_value_info("selected", onnx.TensorProto.INT64, ["boxes", 3]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("seed", range(4))
def test_a_detector(seed: int) -> None:
    """Boxes, scores and classes of what it finds in one tensor, and the indices."""
    random = np.random.default_rng(seed)
    model = detector(random)
    expect_equal(model, {"image": random.standard_normal((1, 3, 9, 11)).astype(np.float32)}, 1e-5)
