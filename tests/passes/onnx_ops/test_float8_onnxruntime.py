"""Floats of 8 bits of ONNX, against ONNX Runtime: casts, and a network of quantised and dequantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers

TYPES = {"e4m3": TensorProto.FLOAT8E4M3FN, "e5m2": TensorProto.FLOAT8E5M2}
RNG = np.random.default_rng(23)


def peer(model: onnx.ModelProto, x: np.ndarray) -> list[Any]:
    """What ONNX Runtime computes as the nodes say, one by one."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def model_of(
    nodes: list[onnx.NodeProto], weights: dict[str, Any], shapes: tuple[Any, Any]
) -> onnx.ModelProto:
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip("xy", shapes, strict=True)
    )
    initializers = [
        each if isinstance(each, onnx.TensorProto) else numpy_helper.from_array(each, name)
        for name, each in weights.items()
    ]
    graph = helper.make_graph(nodes, "float8", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", TYPES)
def test_casts(name: str, saturate: int) -> None:
    """There and back, of numbers within and beyond the type, and of what is no number. Without `saturate` ONNX Runtime
    makes 448 of 480 in E4M3FN, and NaN of 61440 in E5M2: numbers beyond the type are left out there."""
    to = TYPES[name]
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=to, saturate=saturate),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    largest = {"e4m3": 448.0, "e5m2": 57344.0}[name]
    x = np.concatenate(
        [RNG.normal(size=500) * largest, RNG.normal(size=500) * 2.0**-8, [np.inf, -np.inf, np.nan]]
    )
    x = x.astype(np.float32)
    if not saturate:
        x = x[~np.isfinite(x) | (np.abs(x) <= largest)]
    model = model_of(nodes, {}, ([len(x)], [len(x)]))
    (wanted,) = peer(model, x)
    np.testing.assert_array_equal(aicf.compile(model, target="cpu")(x), wanted)


@pytest.mark.parametrize("name", TYPES)
def test_a_layer_of_dequantised_tensors(name: str) -> None:
    """Its operand is quantised with one scale, its weight with one for each output."""
    to = TYPES[name]
    weight, scales = (
        RNG.normal(size=(24, 16)).astype(np.float32),
        (2.0 ** RNG.integers(-6, -3, 16)).astype("f4"),
    )
    zero = helper.make_tensor("zero", to, [], [0.0])
    stored = helper.make_tensor("stored", to, [24, 16], (weight / scales).ravel().tolist())
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["stored", "scales"], ["w"], axis=1),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    weights = {"zero": zero, "stored": stored, "scale": np.float32(0.0625), "scales": scales}
    model = model_of(nodes, weights, ([5, 24], [5, 16]))
    x = RNG.normal(size=(5, 24)).astype(np.float32)
    (wanted,) = peer(model, x)
    np.testing.assert_allclose(aicf.compile(model, target="cpu")(x), wanted, rtol=1e-5, atol=1e-5)
