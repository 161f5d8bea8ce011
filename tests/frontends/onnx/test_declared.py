"""What a model declares of its values is held against what its nodes give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf

FLOAT, INT64, DOUBLE, STRING, UINT32 = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.DOUBLE,
    TensorProto.STRING,
    TensorProto.UINT32,
)
X = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)


def flow(*values: onnx.ValueInfoProto, output: onnx.ValueInfoProto | None = None) -> onnx.ModelProto:
    """y = relu(reshape(x, [3, 4])) + c, with declarations of its values."""
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "shape"], ["r"], name="view"),
            helper.make_node("Relu", ["r"], ["a"], name="act"),
            helper.make_node("Add", ["a", "c"], ["y"], name="sum"),
        ],
        "declared",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 6])],
        [output or helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(np.array([-1, 4]), "shape"),
            numpy_helper.from_array(np.arange(4, dtype=np.float32), "c"),
        ],
        value_info=list(values),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def value(name: str, element: int, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


@pytest.mark.parametrize(
    "declared",
    [
        (),
        (value("r", FLOAT, [3, 4]), value("a", FLOAT, [3, 4])),
        (value("r", FLOAT, ["stale name", 4]), value("a", FLOAT, ["n", "n"])),
        (value("r", FLOAT, [None, None]), value("a", FLOAT, None)),
        (value("r", FLOAT, [0, -1]), value("c", FLOAT, ["m"]), value("x", FLOAT, ["rows", 6])),
        (value("nobody", FLOAT, [7]), value("r", STRING, [3]), value("a", UINT32, [3])),
    ],
    ids=["nothing", "all", "names", "less", "unknown sizes", "not for us"],
)
def test_declarations_that_are_true_or_say_less(declared: Sequence[onnx.ValueInfoProto]) -> None:
    found = aicf.compile(flow(*declared), target="reference", dims="n=2")(X)
    np.testing.assert_array_equal(found, np.maximum(X, 0).reshape(3, 4) + np.arange(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (value("r", FLOAT, [3, 5]), r"Reshape 'view': .*output 0 \('r'\) is 3x4xf32, .* declares 3x5xf32; "),
        (value("r", FLOAT, ["any", 5]), r"Reshape 'view': .* is 3x4xf32, the model declares \?x5xf32"),
        (value("a", FLOAT, [12]), r"Relu 'act': .*output 0 \('a'\) is 3x4xf32, the model declares 12xf32"),
        (value("a", DOUBLE, [3, 4]), r"Relu 'act': .* is 3x4xf32, the model declares 3x4xf64"),
        (value("a", INT64, None), r"Relu 'act': .* is 3x4xf32, the model declares i64 of any shape"),
        (value("y", FLOAT, [4, 3]), r"Add 'sum': .* is 3x4xf32, the model declares 4x3xf32"),
        (value("x", FLOAT, ["n", 5]), "value 'x' is [?]x6xf32, the model declares [?]x5xf32"),
        (value("c", FLOAT, [5]), "value 'c' is 4xf32, the model declares 5xf32"),
    ],
)
def test_contradictions(declared: onnx.ValueInfoProto, message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message) as caught:
        aicf.compile(flow(declared), target="reference", dims="n=2")
    assert "contradictory shapes" in str(caught.value)


def test_an_output_is_held_too() -> None:
    wrong = flow(output=value("y", FLOAT, [3, 4, 1]))
    with pytest.raises(aicf.InvalidIR, match=r"Add 'sum': contradictory shapes: .* declares 3x4x1xf32"):
        aicf.compile(wrong, target="reference", dims="n=2")


def test_two_declarations_of_one_value() -> None:
    wrong = flow(value("y", FLOAT, [None, 4]), output=value("y", FLOAT, [3, 5]))
    with pytest.raises(
        aicf.InvalidIR, match="value 'y' is [?]x4xf32, the model declares it twice, also as 3x5xf32"
    ):
        aicf.compile(wrong, target="reference", dims="n=2")


def test_an_initializer_that_is_listed_as_another_input() -> None:
    wrong = flow()
    wrong.graph.input.append(value("c", FLOAT, [3]))
    with pytest.raises(aicf.InvalidIR, match="value 'c' is 4xf32, the model declares 3xf32"):
        aicf.compile(wrong, target="reference", dims="n=2")


def test_values_of_bodies_and_of_functions() -> None:
    """A body declares its own values; those of a call are held where they are defined."""
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner"], name="minus")],
        "branch",
        [],
        [value("inner", FLOAT, [2, 5])],
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["outer"])], "other", [], [value("outer", FLOAT, [2, 6])]
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], name="if", then_branch=body, else_branch=other)],
        "body",
        [value("x", FLOAT, [2, 6])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array(True), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(
        aicf.InvalidIR, match=r"Neg 'minus': .*\('inner'\) is 2x6xf32, the model declares 2x5xf32"
    ):
        aicf.compile(model, target="reference")

    own = helper.make_opsetid("own", 1)
    twice = helper.make_function(
        "own",
        "twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"], name="add")],
        [helper.make_opsetid("", 17)],
    )
    called = flow(value("y", FLOAT, [2, 7]))
    del called.graph.node[:]
    called.graph.node.append(helper.make_node("twice", ["x"], ["y"], domain="own", name="call"))
    called.functions.append(twice)
    called.opset_import.append(own)
    with pytest.raises(aicf.InvalidIR, match=r"Add 'call/add': .* is 2x6xf32, the model declares 2x7xf32"):
        aicf.compile(called, target="reference", dims="n=2")


def test_one_name_with_two_sizes() -> None:
    """A size of one name is one size; a call in which it is two names both inputs."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["b"], ["z"])],
        "pair",
        [value("a", FLOAT, ["n", 2]), value("b", FLOAT, ["n", 3])],
        [value("y", FLOAT, ["n", 2]), value("z", FLOAT, ["n", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    a, b = np.ones((2, 2), np.float32), np.ones((3, 3), np.float32)
    message = "n is 2 in input 'a', 3 in 'b'"
    with aicf.InferenceSession(model) as session, pytest.raises(aicf.InputMismatch, match=message):
        session.run([a, b])
    with pytest.raises(aicf.InputMismatch, match=message):
        aicf.compile(model, target="reference", dims="n=2,3")(a, b)
