"""Functions of models, and ops that are read as the function bodies that the standard gives them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import aicf
from aicf.frontends.onnx import read_onnx
from aicf.passes.onnx.ops import find_row
from tests.support.onnx_models import expect_model

F = TensorProto.FLOAT
info = helper.make_tensor_value_info
OPSET = helper.make_opsetid("", 18)
OWN = helper.make_opsetid("own", 1)


def has_row(domain: str, op_type: str, opset: int) -> bool:
    return find_row(op_type, domain, opset) is not None


def model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "calls", [info("x", F, [2, 3])], [info("y", F, [2, 3])])
    return helper.make_model(graph, opset_imports=[OPSET, OWN], functions=functions)


def scaled() -> onnx.FunctionProto:
    """Relu(a) + Elu(a, alpha = rate)."""
    elu = helper.make_node("Elu", ["a"], ["e"], name="elu")
    elu.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="rate")
    nodes = [
        helper.make_node("Relu", ["a"], ["r"]),
        elu,
        helper.make_node("Add", ["r", "e"], ["b"], name="sum"),
    ]
    return helper.make_function("own", "scaled", ["a"], ["b"], nodes, [OPSET], ["rate"])


def twice() -> onnx.FunctionProto:
    """scaled(scaled(a)), with two rates."""
    nodes = [
        helper.make_node("scaled", ["a"], ["c"], domain="own", name="first", rate=0.5),
        helper.make_node("scaled", ["c"], ["b"], domain="own", name="second", rate=2.0),
    ]
    return helper.make_function("own", "twice", ["a"], ["b"], nodes, [OPSET, OWN])


def test_calls_are_expanded_and_their_names_kept() -> None:
    flow = model([helper.make_node("twice", ["x"], ["y"], domain="own", name="call")], [scaled(), twice()])
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    wanted = np.asarray(x, np.float64)
    for rate in (0.5, 2.0):
        wanted = np.maximum(wanted, 0) + np.where(wanted > 0, wanted, rate * np.expm1(wanted))
    expect_model(flow, {"x": x}, [wanted.astype(np.float32)])
    text = aicf.compile(flow, target="reference").ir("logical")
    for name in ("call/first/elu", "call/second/sum", "call/second/Relu"):
        assert f'aicf.id = "{name}' in text


def test_a_function_that_calls_itself() -> None:
    again = helper.make_function(
        "own", "again", ["a"], ["b"], [helper.make_node("again", ["a"], ["b"], domain="own")], [OWN]
    )
    flow = model([helper.make_node("again", ["x"], ["y"], domain="own", name="call")], [again])
    with pytest.raises(aicf.InvalidIR, match="must not be recursive"):
        aicf.compile(flow, target="reference")


@pytest.mark.parametrize("op_type", ["HardSwish", "Mish", "ReduceLogSum", "Softsign"])
def test_an_op_without_a_row_is_its_function_body(op_type: str) -> None:
    flow = model([helper.make_node(op_type, ["x"], ["y"], name="n")], [])
    flow.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y"))
    found = read_onnx(flow, lambda domain, op, opset: op != op_type and has_row(domain, op, opset))
    assert op_type not in str(found.module) and 'onnx.node "' in str(found.module)
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(flow).run(None, {"x": x})
    result = aicf.compile(found.module, target="reference")(x)
    np.testing.assert_allclose(np.asarray(result), wanted, 1e-5, 1e-6)


def test_calls_that_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function calls the next one twice: 2^40 nodes in a model of eighty."""
    monkeypatch.setattr("aicf.frontends.onnx.functions.MAX_EXPANDED", 512)
    names = [f"f{level}" for level in range(40)]
    functions = [
        helper.make_function(
            "own",
            name,
            ["a"],
            ["b"],
            [
                helper.make_node(inner, ["a"], ["c"], domain="own"),
                helper.make_node(inner, ["c"], ["b"], domain="own"),
            ],
            [OPSET, OWN],
        )
        for name, inner in pairwise(names)
    ]
    functions.append(
        helper.make_function(
            "own", names[-1], ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [OPSET]
        )
    )
    flow = model([helper.make_node("f0", ["x"], ["y"], domain="own", name="call")], functions)
    with pytest.raises(aicf.UnsupportedOp, match="its calls of functions expand into more than 512 nodes"):
        aicf.compile(flow, target="reference")


def test_an_op_without_row_and_body() -> None:
    flow = model([helper.make_node("Nothing", ["x"], ["y"], domain="own", name="n")], [])
    message = r"op 'Nothing' of domain 'own' opset 1 is not supported \(node 'n'\); replace it by ops of"
    with pytest.raises(aicf.UnsupportedOp, match=message):
        aicf.compile(flow, target="reference")
