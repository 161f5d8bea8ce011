"""ONNX values whose number of slices follows from the data: what goes on from them, and what is refused.

The slices come from Compress, whose conditions are an input; package onnx computes them, and what follows, in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import aicf
from aicf.errors import UnsupportedOp, ValueNeeded
from aicf.inference import InferenceSession
from tests.support.onnx_models import feeds, one_node

Array = NDArray[Any]
RNG = np.random.default_rng(31)
X = RNG.normal(size=(7, 3, 4)).astype(np.float32)
FLOAT = onnx.TensorProto.FLOAT
DEVICES = ("reference", "cpu")


def model_of(
    nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Array], outputs: Sequence[str]
) -> onnx.ModelProto:
    """A graph of inputs x, [7, 3, 4], and holds, [7], whose first node keeps slices of x as `some`."""
    kept = helper.make_node("Compress", ["x", "holds"], ["some"], axis=0)
    graph = helper.make_graph(
        [kept, *nodes],
        "counted",
        [
            helper.make_tensor_value_info("x", FLOAT, X.shape),
            helper.make_tensor_value_info("holds", onnx.TensorProto.BOOL, [7]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def node(op_type: str, *operands: str, outputs: Sequence[str] = ("y",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, operands, list(outputs), name=op_type.lower(), **attributes)


CONSTANTS: dict[str, Array] = {
    "row": RNG.normal(size=(3, 1)).astype(np.float32),
    "one": np.array(0.5, np.float32),
    "matrix": RNG.normal(size=(4, 6)).astype(np.float32),
    "flat": np.array([-1, 12]),
    "kept": np.array([0, 2, 6]),
    "infront": np.array([1, -1, 3, 4]),
    "columns": np.array([2, 0]),
    "first": np.array([0]),
    "second": np.array([1]),
    "third": np.array([2]),
    "zero": np.array([0]),
    "three": np.array([3]),
    "many": np.array([2**62]),
    "all": np.array([-1]),
    "halves": np.array([1, 3]),
    "column": np.array([[1], [0]]),
}

GOES_ON: dict[str, list[onnx.NodeProto]] = {
    "elementwise": [node("Mul", "some", "row", outputs=["scaled"]), node("Relu", "scaled")],
    "two of one count": [node("Neg", "some", outputs=["less"]), node("Sub", "some", "less")],
    "scalar operands": [node("Clip", "some", "one")],
    "of a higher rank": [node("Unsqueeze", "some", "zero", outputs=["deep"]), node("Add", "some", "deep")],
    "select": [node("Less", "some", "one", outputs=["low"]), node("Where", "low", "some", "one")],
    "cast": [node("Cast", "some", to=onnx.TensorProto.DOUBLE)],
    "identity": [node("Identity", "some")],
    "reshape": [node("Reshape", "some", "flat")],
    "reshape that keeps the size": [node("Reshape", "some", "kept")],
    "reshape with a dimension in front": [node("Reshape", "some", "infront")],
    "flatten": [node("Flatten", "some")],
    "transpose": [node("Transpose", "some", perm=[1, 2, 0])],
    "squeeze": [node("Unsqueeze", "some", "third", outputs=["deep"]), node("Squeeze", "deep", "third")],
    "concat": [node("Exp", "some", outputs=["more"]), node("Concat", "some", "more", axis=-1)],
    "split": [node("Split", "some", outputs=["y", "z"], axis=2, num_outputs=2)],
    "slice": [node("Slice", "some", "first", "three", "third")],
    "the first slices": [node("Slice", "some", "zero", "three", "zero")],
    "all slices": [node("Slice", "some", "zero", "many", "zero")],
    "gather columns": [node("Gather", "some", "columns", axis=2)],
    "gather by one column": [node("Gather", "some", "column", axis=1)],
    "reduction": [node("ReduceMax", "some", "third", keepdims=0)],
    "reduction in front": [
        node("Transpose", "some", perm=[1, 0, 2], outputs=["turned"]),
        node("ReduceSum", "turned", "zero", keepdims=0),
    ],
    "largest": [node("ArgMax", "some", axis=-1, keepdims=0)],
    "softmax": [node("Softmax", "some", axis=1)],
    "product": [node("MatMul", "some", "matrix", outputs=["prod"]), node("ReduceSum", "prod", "second")],
    "rows of a product": [
        node("Reshape", "some", "flat", outputs=["rows"]),
        node("Slice", "rows", "zero", "three", "second", outputs=["narrow"]),
        node("MatMul", "narrow", "square"),
    ],
}
CONSTANTS["square"] = RNG.normal(size=(3, 5)).astype(np.float32)


def check(nodes: Sequence[onnx.NodeProto], holds: Sequence[Sequence[int]], outputs: Sequence[str]) -> None:
    """Both devices against package onnx, for each list of conditions."""
    model = model_of(nodes, CONSTANTS, outputs)
    given = [{"x": X, "holds": np.array(conditions, bool)} for conditions in holds]
    wanted = [ReferenceEvaluator(model).run(None, feeds) for feeds in given]
    for device in DEVICES:
        with InferenceSession(model, device=device) as session:
            found = [session.run(feeds) for feeds in given]
        for results, expected in zip(found, wanted, strict=True):
            assert list(results) == list(outputs)
            for name, array in zip(outputs, expected, strict=True):
                assert (results[name].dtype, results[name].shape) == (array.dtype, array.shape)
                np.testing.assert_allclose(results[name], array, 1e-5, 1e-6, err_msg=f"{name} on {device}")


@pytest.mark.parametrize("name", GOES_ON)
def test_ops_that_treat_slices_alike(name: str) -> None:
    """For some slices, none and all of them."""
    nodes = GOES_ON[name]
    outputs = [output for output in nodes[-1].output]
    # Package onnx cannot flatten nothing.
    check(nodes, [[1, 0, 0, 1, 1, 0, 0], [1] * 7, *([] if name == "flatten" else [[0] * 7])], outputs)


@pytest.mark.parametrize("sizes", [[0, -1, 4], [0, 0, 4], [0, 0, 2, 2], [0, -1, 1, 4]], ids=str)
def test_a_dimension_of_one_beside_one_slice_that_may_be_there(sizes: list[int]) -> None:
    """Both are of size 1 in the program; only the second is counted."""
    x = X[:1, :1]
    graph = helper.make_graph(
        [node("Compress", "x", "holds", outputs=["some"], axis=1), node("Reshape", "some", "sizes")],
        "one",
        [
            helper.make_tensor_value_info("x", FLOAT, x.shape),
            helper.make_tensor_value_info("holds", onnx.TensorProto.BOOL, [1]),
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array(sizes), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with InferenceSession(model, device="cpu") as session:
        for holds in (False, True):
            given = {"x": x, "holds": np.array([holds])}
            (wanted,) = ReferenceEvaluator(model).run(None, given)
            found = session.run(given)["y"]
            assert found.shape == wanted.shape
            np.testing.assert_array_equal(found, wanted)


def test_outputs_of_one_count_and_of_none() -> None:
    nodes = [node("Abs", "some", outputs=["y"]), node("Neg", "x", outputs=["z"])]
    check(nodes, [[0, 1, 1, 0, 0, 0, 1]], ["y", "z", "some"])


def test_indices_of_what_is_there() -> None:
    """Detectors gather by columns of indices that are found."""
    nodes = [
        node("NonZero", "holds", outputs=["places"]),
        node("Transpose", "places", outputs=["rows"]),
        node("GatherND", "x", "rows", outputs=["y"]),
        node("Squeeze", "places", "zero", outputs=["numbers"]),
        node("Gather", "x", "numbers", outputs=["z"], axis=0),
    ]
    check(nodes, [[0, 1, 1, 0, 0, 0, 1]], ["y", "z", "places"])


MIXES: dict[str, list[onnx.NodeProto]] = {
    "shape": [node("Shape", "some")],
    "size": [node("Size", "some")],
    "reduction": [node("ReduceSum", "some", "zero")],
    "reduction of all": [node("ReduceMax", "some")],
    "largest": [node("ArgMax", "some", axis=0)],
    "softmax": [node("Softmax", "some", axis=0)],
    "running sum": [node("CumSum", "some", "axis")],
    "one more slice": [node("Concat", "some", "x", axis=0)],
    "beside what is not counted": [node("Concat", "some", "x", axis=1)],
    "elements of all": [node("Add", "some", "x")],
    "slices from behind": [node("Slice", "some", "zero", "all", "zero")],
    "later slices": [node("Slice", "some", "second", "three", "zero")],
    "one slice": [node("Gather", "some", "first", axis=0)],
    "all in one": [node("Reshape", "some", "all")],
    "a number of slices": [node("Reshape", "some", "fixed")],
    "best": [node("TopK", "some", "three", outputs=["y", "z"], axis=0)],
    "product over slices": [
        node("Transpose", "some", perm=[1, 2, 0], outputs=["t"]),
        node("MatMul", "t", "some7"),
    ],
    "two counts": [node("Compress", "x", "holds", outputs=["again"], axis=0), node("Add", "some", "again")],
    "loop": [node("SequenceConstruct", "some")],
}


@pytest.mark.parametrize("name", MIXES)
def test_ops_that_would_mix_slices(name: str) -> None:
    """They are named, with the dimension and the way out."""
    constants = {
        **CONSTANTS,
        "axis": np.array(0),
        "fixed": np.array([7, 12]),
        "some7": RNG.normal(size=(7, 2)).astype(np.float32),
    }
    nodes = MIXES[name]
    model = model_of(nodes, constants, [nodes[-1].output[0]])
    culprit = nodes[-1].op_type
    wanted = rf"{culprit} '{culprit.lower()}': how many elements operand 0 has along dimension \d is known at run time"
    with pytest.raises(UnsupportedOp, match=wanted) as caught:
        aicf.compile(model, target="cpu")
    assert "make the operand an output of the model" in str(caught.value)
    assert isinstance(caught.value, ValueNeeded)  # few conditions: a session follows them
    assert caught.value.inputs == ("holds",)  # how many slices there are does not follow from what is in them


def test_a_session_follows_few_values_where_slices_mix() -> None:
    """A program for these conditions, in which the number of slices is a number."""
    check([node("ReduceSum", "some", "zero")], [[0, 1, 1, 0, 0, 0, 1]], ["y"])


@settings(max_examples=5)
@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    dtype=st.sampled_from(["float32", "int64", "bool", "uint8"]),
    seed=st.integers(0, 2**32),
)
def test_indices_that_are_not_zero(shape: list[int], dtype: str, seed: int) -> None:
    """NaN and negative zero as NumPy has it."""
    random = np.random.default_rng(seed)
    x = random.choice([0.0, 1.0, 2.0, 0.0], shape).astype(dtype)
    if dtype == "float32":
        x = np.where(random.random(shape) < 0.3, random.choice([-0.0, np.nan, np.inf], shape), x).astype(
            dtype
        )
    model = one_node("NonZero", [x])
    for device in DEVICES:
        with InferenceSession(model, device=device) as session:
            found = session.run(feeds([x]))["y0"]
        wanted = np.array(np.nonzero(np.atleast_1d(x)), np.int64)
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("count", [0, 2, 3])
def test_slices_under_conditions(axis: int | None, count: int) -> None:
    """Fewer conditions than slices leave the rest out."""
    x, holds = RNG.normal(size=(3, 4, 3)).astype(np.float32), RNG.random(count) < 0.6
    model = one_node("Compress", [x, holds], **({} if axis is None else {"axis": axis}))
    for device in DEVICES:
        with InferenceSession(model, device=device) as session:
            found = session.run(feeds([x, holds]))["y0"]
        np.testing.assert_array_equal(found, np.compress(holds, x, axis))
