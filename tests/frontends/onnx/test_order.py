"""Nodes that stand before what they read are put after it, in graphs, the graphs of nodes, and functions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(0)


def model(
    nodes: Sequence[onnx.NodeProto], functions: Sequence[onnx.FunctionProto] = (), **constants: np.ndarray
) -> onnx.ModelProto:
    """From x of two by three floats to y, of opset 18."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", FLOAT, [2, 3])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18), *[helper.make_opsetid("mine", 1) for _ in functions]]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def exact(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return aicf.compile(proto, target="reference")(x)


def chain(first: str, last: str) -> list[onnx.NodeProto]:
    """(exp(first) - first) * exp(first) + first as `last`: four nodes, of which each reads the one before."""
    return [
        helper.make_node("Exp", [first], ["a"]),
        helper.make_node("Sub", ["a", first], ["b"]),
        helper.make_node("Mul", ["b", "a"], ["c"]),
        helper.make_node("Add", ["c", first], [last]),
    ]


def chained(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return (np.exp(x) - x) * np.exp(x) + x


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_every_order_is_one_program(order: tuple[int, ...]) -> None:
    nodes = chain("x", "y")
    given = model([nodes[index] for index in order])
    before = given.SerializeToString(deterministic=True)
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(exact(given, x), chained(x), rtol=1e-5, atol=1e-6)
    assert aicf.compile(given, target="reference").ir("emit") == (
        aicf.compile(model(nodes), target="reference").ir("emit")
    )
    assert given.SerializeToString(deterministic=True) == before


def test_nodes_that_may_stay_do() -> None:
    """Only the one that is before what it reads moves, to the first place after that."""
    sums = [helper.make_node("Add", [name, name], [f"{name}{name}"], name) for name in "pqr"]
    inputs = [helper.make_node("Relu", ["x"], [name]) for name in "pqr"]
    last = helper.make_node("Sum", ["pp", "qq", "rr"], ["y"])
    proto = model([inputs[0], sums[1], sums[0], inputs[1], inputs[2], sums[2], last])
    nodes = [
        line.split('"') for line in aicf.compile(proto).ir("logical").splitlines() if "onnx.node" in line
    ]
    assert [words[3] for words in nodes if words[1] == "Add"] == ["p", "q", "r"]
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(exact(proto, x), 6 * np.maximum(x, 0), rtol=1e-5, atol=1e-6)


def test_the_graphs_of_nodes_read_what_is_after_their_node() -> None:
    """The branch reads `late`, which the graph around it gives in the end, and has its own nodes turned round."""
    branch = helper.make_graph(
        chain("late", "z")[::-1], "then", [], [helper.make_tensor_value_info("z", FLOAT, [2, 3])]
    )
    nodes = [
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Neg", ["x"], ["late"]),
    ]
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(exact(model(nodes, yes=np.array(True)), x), chained(-x), rtol=1e-5, atol=1e-6)


def test_the_nodes_of_a_function() -> None:
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("mine", "chain", ["i"], ["o"], chain("i", "o")[::-1], opsets)
    nodes = [helper.make_node("chain", ["n"], ["y"], domain="mine"), helper.make_node("Neg", ["x"], ["n"])]
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(exact(model(nodes, [function]), x), chained(-x), rtol=1e-5, atol=1e-6)
