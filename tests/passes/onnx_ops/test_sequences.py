"""Sequences and optional values, which exist while a graph is lowered and are not in the program."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from tests.support.onnx_models import expect_model

F = TensorProto.FLOAT
info = helper.make_tensor_value_info


def model(nodes: list[onnx.NodeProto], outputs: list[str], **constants: object) -> onnx.ModelProto:
    """Of the inputs a and b, [2, 3] each."""
    graph = helper.make_graph(
        nodes,
        "sequences",
        [info("a", F, [2, 3]), info("b", F, [2, 3])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def given() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((2, 3)).astype(np.float32) for name in "ab"}


node = helper.make_node


def test_made_changed_and_taken_apart() -> None:
    nodes = [
        node("SequenceConstruct", ["a", "b"], ["s0"]),
        node("Relu", ["a"], ["r"]),
        node("SequenceInsert", ["s0", "r", "one"], ["s1"]),
        node("SequenceErase", ["s1", "first"], ["s2"]),
        node("SequenceLength", ["s2"], ["n"]),
        node("SequenceAt", ["s2", "last"], ["y"]),
        node("ConcatFromSequence", ["s2"], ["all"], axis=1),
        node("ConcatFromSequence", ["s1"], ["stacked"], axis=-1, new_axis=1),
    ]
    flow = model(nodes, ["y", "all", "stacked"], one=np.int64(1), first=np.int64(0), last=np.int64(-1))
    values = given()
    a, b, r = values["a"], values["b"], np.maximum(values["a"], 0)
    expect_model(flow, values, [b, np.concatenate([r, b], 1), np.stack([a, r, b], -1)])


@pytest.mark.parametrize("split", [None, np.int64(2), np.array([1, 2])])
def test_split(split: np.ndarray | None) -> None:
    nodes = [
        node("SplitToSequence", ["a", "" if split is None else "split"], ["s"], axis=1),
        node("SequenceAt", ["s", "one"], ["y"]),
    ]
    constants = {"one": np.int64(1)} if split is None else {"one": np.int64(1), "split": split}
    values = given()
    start = 2 if split is not None and split.ndim == 0 else 1
    stop = 2 if split is None else 3
    expect_model(model(nodes, ["y"], **constants), values, [values["a"][:, start:stop]])


def test_map_over_a_sequence() -> None:
    body = helper.make_graph(
        [node("Add", ["x", "c"], ["y"])],
        "body",
        [info("x", F, [2, 3]), info("c", F, [2, 3])],
        [info("y", F, [2, 3])],
    )
    nodes = [
        node("SequenceConstruct", ["a", "b"], ["s"]),
        node("SequenceMap", ["s", "b"], ["t"], body=body),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    values = given()
    expect_model(model(nodes, ["y"]), values, [np.concatenate([values["a"] + values["b"], 2 * values["b"]])])


def test_optional_values() -> None:
    nodes = [
        node("Optional", ["a"], ["o"]),
        node("OptionalHasElement", ["o"], ["has"]),
        node("OptionalGetElement", ["o"], ["x"]),
        node("Where", ["has", "x", "b"], ["y"]),
    ]
    values = given()
    expect_model(model(nodes, ["y"]), values, [values["a"]])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [node("SequenceConstruct", ["a"], ["s"]), node("SequenceAt", ["s", "five"], ["y"], name="n")],
            "position 5 is",
        ),
        (
            [node("SequenceConstruct", ["a"], ["s"]), node("Relu", ["s"], ["y"], name="n")],
            "operand 0 is a sequence",
        ),
        ([node("SequenceLength", ["a"], ["y"], name="n")], "operand 0 is a tensor, a sequence is wanted"),
        ([node("ConcatFromSequence", ["a"], ["y"], axis=0, name="n")], "operand 0 is a tensor"),
        (
            [
                node("SplitToSequence", ["a", "five"], ["s"], name="n"),
                node("SequenceErase", ["s", "five"], ["y"]),
            ],
            "pos",
        ),
    ],
)
def test_errors(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message):
        aicf.compile(model(nodes, ["y"], five=np.int64(5)), target="reference")


def test_a_result_is_no_sequence() -> None:
    with pytest.raises(aicf.UnsupportedOp, match="result 's' is a sequence"):
        aicf.compile(model([node("SequenceConstruct", ["a"], ["s"])], ["s"]), target="reference")
