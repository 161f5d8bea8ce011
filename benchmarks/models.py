"""The models of the CPU benchmark, each for AICF, for ONNX Runtime (through onnx.helper) and for NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from scipy.special import erf

import aicf

Floats = NDArray[np.float32]
OPSET = 20
"""The first with Gelu."""
IR_VERSION = 10


@dataclass(frozen=True)
class Model:
    """One model at one batch size, with random weights."""

    name: str
    x: Floats
    weights: dict[str, Floats]
    graph: aicf.Graph
    onnx: onnx.ModelProto
    numpy: Callable[[Floats], Floats]


def _normal(seed: int, *shape: int) -> Floats:
    scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def _weights(layers: dict[str, tuple[int, int]]) -> dict[str, Floats]:
    weights: dict[str, Floats] = {}
    for seed, (name, (outputs, inputs)) in enumerate(layers.items()):
        weights[f"{name}.weight"] = _normal(2 * seed, outputs, inputs)
        weights[f"{name}.bias"] = _normal(2 * seed + 1, outputs)
    return weights


def _linear(graph: aicf.Graph, x: aicf.Value, weights: dict[str, Floats], name: str) -> aicf.Value:
    weight = graph.param(f"{name}.weight", weights[f"{name}.weight"].shape)
    return graph.linear(x, weight, graph.param(f"{name}.bias", weights[f"{name}.bias"].shape), name=name)


def _gemm(x: str, name: str, out: str) -> onnx.NodeProto:
    return helper.make_node("Gemm", [x, f"{name}.weight", f"{name}.bias"], [out], transB=1)


def _onnx_model(
    nodes: list[onnx.NodeProto], x: Floats, outputs: int, weights: dict[str, Floats]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (len(x), outputs))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model


def digits(batch: int) -> Model:
    """64-128-64-10 with ReLU and softmax."""
    weights = _weights({"fc1": (128, 64), "fc2": (64, 128), "fc3": (10, 64)})
    x = np.random.default_rng(7).random((batch, 64), dtype=np.float32)
    graph = aicf.Graph("digits")
    value = graph.input("x", x.shape)
    for name in ("fc1", "fc2"):
        value = graph.relu(_linear(graph, value, weights, name))
    graph.output(graph.softmax(_linear(graph, value, weights, "fc3")), "y")
    nodes = [
        _gemm("x", "fc1", "a"),
        helper.make_node("Relu", ["a"], ["b"]),
        _gemm("b", "fc2", "c"),
        helper.make_node("Relu", ["c"], ["d"]),
        _gemm("d", "fc3", "e"),
        helper.make_node("Softmax", ["e"], ["y"], axis=1),
    ]

    def forward(x: Floats) -> Floats:
        for name in ("fc1", "fc2"):
            x = np.maximum(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"], 0)
        x = x @ weights["fc3.weight"].T + weights["fc3.bias"]
        x = np.exp(x - x.max(axis=1, keepdims=True))
        return x / x.sum(axis=1, keepdims=True)

    return Model(f"digits, batch {batch}", x, weights, graph, _onnx_model(nodes, x, 10, weights), forward)


def mlp(batch: int = 128, width: int = 512, hidden: int = 2048) -> Model:
    """Two layers with GELU, and a residual around them."""
    weights = _weights({"up": (hidden, width), "down": (width, hidden)})
    x = _normal(99, batch, width) * np.float32(width**0.5)
    graph = aicf.Graph("mlp")
    value = graph.input("x", x.shape)
    inner = graph.gelu(_linear(graph, value, weights, "up"))
    graph.output(graph.add(_linear(graph, inner, weights, "down"), value), "y")
    nodes = [
        _gemm("x", "up", "a"),
        helper.make_node("Gelu", ["a"], ["b"]),
        _gemm("b", "down", "c"),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]

    def forward(x: Floats) -> Floats:
        inner = x @ weights["up.weight"].T + weights["up.bias"]
        inner *= np.float32(0.5) * (1 + erf(inner * np.float32(0.5**0.5)))
        return inner @ weights["down.weight"].T + weights["down.bias"] + x

    name = f"mlp {batch}x{width}-{hidden}-{width}, GELU, residual"
    return Model(name, x, weights, graph, _onnx_model(nodes, x, width, weights), forward)


def session(model: Model) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread, with every optimisation."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model.onnx.SerializeToString(), options, ["CPUExecutionProvider"])


def bound_run(runner: onnxruntime.InferenceSession, x: Floats, y: Floats) -> Callable[[], None]:
    """A run of ONNX Runtime on memory that is bound once."""
    binding = runner.io_binding()
    for name, array, bind in (("x", x, binding.bind_input), ("y", y, binding.bind_output)):
        bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    return lambda: runner.run_with_iobinding(binding)


def _primitive_block(graph: aicf.Graph, x: aicf.Value, name: str) -> aicf.Value:
    weight, bias = graph.param(f"{name}.w", (WIDTH, WIDTH)), graph.param(f"{name}.b", x.shape)
    return graph.tanh(graph.add(graph.mul(graph.add(graph.matmul(x, weight), bias), x), x))


def _layer(graph: aicf.Graph, x: aicf.Value, name: str) -> aicf.Value:
    weight, bias = graph.param(f"{name}.w", (WIDTH, WIDTH)), graph.param(f"{name}.b", (WIDTH,))
    return graph.relu(graph.linear(x, weight, bias))


def _residual_block(graph: aicf.Graph, x: aicf.Value, name: str) -> aicf.Value:
    scale, shift = graph.param(f"{name}.scale", (WIDTH,)), graph.param(f"{name}.shift", (WIDTH,))
    up, down = graph.param(f"{name}.up", (WIDTH, WIDTH)), graph.param(f"{name}.down", (WIDTH, WIDTH))
    inner = graph.linear(graph.layer_norm(x, scale, shift), up, graph.param(f"{name}.b", (WIDTH,)))
    return graph.add(graph.linear(graph.gelu(inner), down), x)


WIDTH = 64
BLOCKS = {
    "matmul, add, mul, add, tanh": (_primitive_block, 5),
    "linear, relu": (_layer, 2),
    "layer_norm, linear, gelu, linear, add": (_residual_block, 5),
}
"""What the pipeline is timed on: a block, and its number of logical ops. The second and third are no primitive ops."""


def stack(block: str, ops: int) -> aicf.Graph:
    """Blocks one after the other, `ops` logical ops in all."""
    make, count = BLOCKS[block]
    graph = aicf.Graph("stack")
    value = graph.input("x", (32, WIDTH))
    for number in range(ops // count):
        value = make(graph, value, f"block{number}")
    graph.output(value, "y")
    return graph
