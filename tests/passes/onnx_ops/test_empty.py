"""Tensors without elements: inputs, outputs and what is computed of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import aicf
from tests.support.onnx_models import expect

F = TensorProto.FLOAT


def test_elementwise_of_nothing() -> None:
    x = np.empty((2, 0, 3), np.float32)
    expect("Relu", [x])
    expect("Add", [x, np.ones((1, 1, 3), np.float32)])


def test_concatenation_drops_what_is_empty() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3)).astype(np.float32), np.empty((0, 3), np.float32)
    expect("Concat", [x, y], axis=0)
    expect("Concat", [y, y], axis=0)
    expect("Concat", [y, x, x], axis=0)


def test_a_size_of_zero_is_a_bucket() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Concat", ["past", "x"], ["y"], axis=0)],
        "cache",
        [info("past", F, ["n", 2]), info("x", F, [1, 2])],
        [helper.make_empty_tensor_value_info("y")],
    )
    exe = aicf.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
        dims={"n": [0, 2]},
        target="cpu",
    )
    x = np.random.default_rng(1).standard_normal((1, 2)).astype(np.float32)
    past = np.empty((0, 2), np.float32)
    np.testing.assert_array_equal(exe({"past": past, "x": x}), x)
    two = np.concatenate([x, x + 1])
    np.testing.assert_array_equal(exe({"past": two, "x": x}), np.concatenate([two, x]))
    with pytest.raises(aicf.InputMismatch, match="no program for n=1"):
        exe({"past": x, "x": x})


def test_cuda_refuses_a_result_without_elements() -> None:
    """A launch has at least one block; what reads nothing empty is no matter."""
    text = """
    func.func @f(%x : tensor<3xf32> {logical.name = "x", logical.role = "input"},
                 %e : tensor<0x4xf32> {logical.name = "e", logical.role = "input"})
        -> (tensor<3xf32> {logical.name = "y"}) {
      %y = logical.exp %x : tensor<3xf32>
      func.return %y : tensor<3xf32>
    }"""
    assert "cuda" in aicf.compile(text, target="cuda:sm_90a").ir("emit")
    empty = text.replace("-> (tensor<3xf32>", "-> (tensor<0x4xf32>").replace(
        "return %y : tensor<3xf32>", "return %e : tensor<0x4xf32>"
    )
    with pytest.raises(
        aicf.UnsupportedOp, match="a result has no elements, and a launch has at least one block"
    ):
        aicf.compile(empty, target="cuda:sm_90a")


def test_what_has_no_elements_is_not_computed() -> None:
    """NumPy has no maximum of nothing, but these results have no elements either."""
    w = np.random.default_rng(2).standard_normal((2, 1, 3, 3)).astype(np.float32)
    images = np.empty((0, 1, 5, 5), np.float32)
    nothing = np.empty((2, 0), np.float32)
    expect("Softmax", [nothing], axis=1, expected=[nothing])
    expect("Conv", [images, w], known=[1], expected=[np.empty((0, 2, 3, 3), np.float32)])
    expect("MaxPool", [images], kernel_shape=[2, 2], expected=[np.empty((0, 1, 4, 4), np.float32)])
    scale = np.empty(0, np.float32)
    expect("LayerNormalization", [nothing, scale], known=[1], expected=[nothing])
