"""ONNX models whose gradients are what their random nodes draw: each step of SGD at rate 1 takes the draw off `w`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


def drawing(nodes: Sequence[onnx.NodeProto], shape: Sequence[int], **weights: Array) -> onnx.ModelProto:
    """A model `drawing`: nodes that make `drawn` of `w` (zeros) and of the input `x`, and its sum as the loss."""
    initializers = {"w": np.zeros(shape, np.float32), **weights}
    graph = helper.make_graph(
        [*nodes, helper.make_node("ReduceSum", ["drawn"], ["loss"], name="sum", keepdims=0)],
        "drawing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dropouts(count: int, ratio: float, shape: Sequence[int], *, mode: bool = True) -> onnx.ModelProto:
    """w[i] * x through dropout `drop<i>`, for each of `count` rows of `w`; their sum is the loss."""
    rows = [f"row{index}" for index in range(count)]
    nodes = [
        helper.make_node("Mul", ["w", "x"], ["product"], name="product"),
        helper.make_node("Split", ["product"], rows, name="rows", axis=0),
        *(
            helper.make_node("Dropout", [row, "ratio", "mode"], [f"{row}.kept"], name=f"drop{index}")
            for index, row in enumerate(rows)
        ),
        helper.make_node("Concat", [f"{row}.kept" for row in rows], ["drawn"], name="together", axis=0),
    ]
    return drawing(nodes, [count, *shape], ratio=np.float32(ratio), mode=np.array(mode))
