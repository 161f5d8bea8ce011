"""ONNX models as PyTorch exports them for training: weights are initializers under the names of modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import DTypeLike
from onnx import helper, numpy_helper
from sklearn.datasets import load_digits

Weights = Mapping[str, np.ndarray]


def mlp_weights(dtype: DTypeLike, seed: int = 0) -> dict[str, np.ndarray]:
    """Of `mlp`: the weights of the first layer are large, all others constants of up to 1,024 bytes."""
    return _random_weights(
        {"fc1.weight": (24, 64), "fc1.bias": (24,), "fc2.weight": (10, 24), "fc2.bias": (10,)}, dtype, seed
    )


def mlp(weights: Weights) -> onnx.ModelProto:
    """Images [batch, 64] to scores [batch, 10]."""
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h1"], name="/fc1/Gemm", transB=1),
        helper.make_node("Relu", ["h1"], ["h2"], name="/act/Relu"),
        helper.make_node("Gemm", ["h2", "fc2.weight", "fc2.bias"], ["scores"], name="/fc2/Gemm", transB=1),
    ]
    return _model("mlp", nodes, ["batch", 64], weights)


def cnn_weights(dtype: DTypeLike, seed: int = 0) -> dict[str, np.ndarray]:
    """Of `cnn`; `bn.running_var` is positive."""
    shapes = {
        "conv1.weight": (8, 1, 3, 3),
        "conv1.bias": (8,),
        "bn.weight": (8,),
        "bn.bias": (8,),
        "bn.running_mean": (8,),
        "bn.running_var": (8,),
        "conv2.weight": (12, 8, 3, 3),
        "conv2.bias": (12,),
        "scale": (12, 1, 1),
        "fc.weight": (10, 48),
        "fc.bias": (10,),
    }
    weights = _random_weights(shapes, dtype, seed)
    for name in ("bn.weight", "bn.running_var", "scale"):
        weights[name] = (1 + np.abs(weights[name])).astype(dtype)
    return weights


def cnn(weights: Weights) -> onnx.ModelProto:
    """Images [batch, 1, 8, 8] to scores [batch, 10]: convolutions, a batch norm in its inference form, poolings.

    The half after `scale` is a Constant, the shape of the Reshape an initializer of integers.
    """
    dtype = weights["conv1.weight"].dtype
    half = numpy_helper.from_array(np.asarray(0.5, dtype))
    bn = ["c1", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    nodes = [
        helper.make_node(
            "Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], name="/conv1/Conv", pads=[1, 1, 1, 1]
        ),
        helper.make_node("BatchNormalization", bn, ["n1"], name="/bn/BatchNormalization"),
        helper.make_node("Relu", ["n1"], ["r1"], name="/act/Relu"),
        helper.make_node(
            "MaxPool", ["r1"], ["p1"], name="/pool/MaxPool", kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node(
            "Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], name="/conv2/Conv", pads=[1, 1, 1, 1]
        ),
        helper.make_node("Constant", [], ["half"], name="/half", value=half),
        helper.make_node("Mul", ["scale", "half"], ["s"], name="/Mul"),
        helper.make_node("Mul", ["c2", "s"], ["m2"], name="/Mul_1"),
        helper.make_node("Tanh", ["m2"], ["r2"], name="/act2/Tanh"),
        helper.make_node(
            "AveragePool", ["r2"], ["p2"], name="/pool2/AveragePool", kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node("Reshape", ["p2", "flat"], ["f"], name="/Reshape"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["scores"], name="/fc/Gemm", transB=1),
    ]
    return _model("cnn", nodes, ["batch", 1, 8, 8], {**weights, "flat": np.array([-1, 48])})


def digit_batches(
    count: int, rows: int, shape: Sequence[int], dtype: DTypeLike
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images of handwritten digits [rows, *shape] from 0 to 1, with their labels."""
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    images = (digits.data[order] / 16).astype(dtype).reshape(-1, *shape)
    labels = digits.target[order].astype(np.int64)
    return [(images[i * rows : (i + 1) * rows], labels[i * rows : (i + 1) * rows]) for i in range(count)]


def _random_weights(
    shapes: Mapping[str, Sequence[int]], dtype: DTypeLike, seed: int
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: (0.2 * random.standard_normal(shape)).astype(dtype) for name, shape in shapes.items()}


def _model(
    name: str, nodes: list[onnx.NodeProto], shape: list[str | int], weights: Weights
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(next(iter(weights.values())).dtype)
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("scores", element, ["batch", 10])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
