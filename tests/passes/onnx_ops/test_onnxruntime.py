"""ONNX rows of products, norms, recurrent layers, losses and quantised tensors against ONNX Runtime, on random data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import aicf
from tests.support.onnx_models import Array, feeds, one_node

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(23)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def bits(dtype: str, *shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8).view(dtype)


def weights(*shape: int) -> Array:
    """i8 of 7 bits: of u8 times i8, the runtime adds two products in 16 bits where the processor has no VNNI, and more
    than 255 x 64 x 2 saturates there. Products of all 8 bits are compared with NumPy's, in test_quantization."""
    return RNG.integers(-64, 65, shape).astype(np.int8)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def layer(
    op: str, steps: int, directions: int, *, lengths: Sequence[int] | None = None
) -> list[Array | None]:
    """The operands of a recurrent layer of 6 states over 5 inputs, for a batch of three."""
    rows = {"RNN": 6, "GRU": 18, "LSTM": 24}[op]
    states = [normal(directions, 3, 6) for _ in range(2 if op == "LSTM" else 1)]
    return [
        normal(steps, 3, 5),
        normal(directions, rows, 5),
        normal(directions, rows, 6),
        normal(directions, 2 * rows),
        None if lengths is None else np.array(lengths, np.int32),
        *states,
    ]


BOTH = {"direction": "bidirectional", "hidden_size": 6}
BACK = {"direction": "reverse", "hidden_size": 6}
LENGTHS = (4, 0, 2)

# Op, opset, operands, how many outputs there are, attributes.
CASES: list[tuple[str, int, list[Array | None], int, dict[str, Any]]] = [
    ("MatMul", 13, [normal(2, 1, 3, 4), normal(5, 4, 6)], 1, {}),
    (
        "Gemm",
        13,
        [normal(4, 3), normal(5, 4), normal(3, 1)],
        1,
        {"transA": 1, "transB": 1, "alpha": 0.3, "beta": 0.7},
    ),
    ("Softmax", 11, [normal(3, 4, 5)], 1, {"axis": 1}),
    ("LogSoftmax", 13, [normal(3, 4, 5)], 1, {"axis": 0}),
    ("Hardmax", 11, [normal(3, 4, 5)], 1, {"axis": 2}),
    (
        "LayerNormalization",
        17,
        [normal(3, 4, 5), normal(4, 5), normal(4, 5)],
        3,
        {"axis": 1, "epsilon": 1e-3},
    ),
    ("BatchNormalization", 15, [normal(2, 3, 4), *(np.abs(normal(3)) + 0.1 for _ in range(4))], 1, {}),
    ("InstanceNormalization", 13, [normal(2, 3, 4, 5), normal(3), normal(3)], 1, {}),
    ("LpNormalization", 13, [normal(3, 4)], 1, {"p": 1, "axis": 0}),
    ("LRN", 13, [normal(2, 7, 3, 3)], 1, {"size": 5, "alpha": 0.3, "beta": 0.6, "bias": 1.5}),
    ("MeanVarianceNormalization", 13, [normal(2, 3, 4, 5)], 1, {}),
    ("RNN", 14, layer("RNN", 4, 2, lengths=LENGTHS), 2, BOTH),
    (
        "RNN",
        14,
        layer("RNN", 4, 1),
        2,
        {**BACK, "clip": 0.4, "activations": ["Elu"], "activation_alpha": [0.7]},
    ),
    ("GRU", 14, layer("GRU", 4, 2, lengths=LENGTHS), 2, BOTH),
    ("GRU", 14, layer("GRU", 4, 1), 2, {**BACK, "linear_before_reset": 1, "clip": 0.4}),
    ("LSTM", 14, layer("LSTM", 4, 2, lengths=LENGTHS), 3, BOTH),
    ("LSTM", 14, [*layer("LSTM", 4, 1), normal(1, 18)], 3, {**BACK, "clip": 0.4}),
    ("LSTM", 14, [*layer("LSTM", 4, 1), normal(1, 18)], 3, {**BACK, "input_forget": 1}),
    ("LSTM", 14, layer("LSTM", 24, 2), 3, BOTH),
    (
        "SoftmaxCrossEntropyLoss",
        13,
        [normal(6, 5), RNG.integers(0, 5, 6), np.abs(normal(5))],
        2,
        {"ignore_index": 2},
    ),
    (
        "NegativeLogLikelihoodLoss",
        13,
        [normal(6, 5, 3), RNG.integers(0, 5, (6, 3))],
        1,
        {"reduction": "none"},
    ),
    ("QuantizeLinear", 13, [40 * normal(5, 6), np.abs(normal(6)) + 0.1, bits("int8", 6)], 1, {"axis": 1}),
    (
        "QuantizeLinear",
        21,
        [40 * normal(5, 6), np.abs(normal(5, 3)) + 0.1, bits("uint8", 5, 3)],
        1,
        {"block_size": 2},
    ),
    ("DequantizeLinear", 13, [bits("uint8", 5, 6), np.abs(normal(5)), bits("uint8", 5)], 1, {"axis": 0}),
    ("DynamicQuantizeLinear", 11, [normal(7, 8)], 3, {}),
    ("DynamicQuantizeLinear", 11, [np.zeros((2, 3), np.float32)], 3, {}),
    (
        "MatMulInteger",
        10,
        [bits("uint8", 3, 70), weights(70, 5), scalar(9, "uint8"), bits("int8", 5)],
        1,
        {},
    ),
    (
        "QLinearMatMul",
        10,
        [
            *(bits("uint8", 3, 8), scalar(0.13), scalar(7, "uint8")),
            *(weights(8, 5), np.abs(normal(5)), bits("int8", 5), scalar(3.7), scalar(11, "uint8")),
        ],
        1,
        {},
    ),
]


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "outputs", "attributes"), CASES, ids=lambda value: str(value)[:12]
)
def test_like_onnx_runtime(
    op: str, opset: int, inputs: list[Array | None], outputs: int, attributes: dict[str, Any]
) -> None:
    model = one_node(op, inputs, outputs, opset=opset, **attributes)
    found = aicf.compile(model, target="cpu").run(feeds(inputs))
    # The runtime wants to be told what comes out.
    for output in model.graph.output:
        output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(found[output.name].dtype)
    model.ir_version = min(model.ir_version, 10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, wanted in zip(model.graph.output, session.run(None, feeds(inputs)), strict=True):
        result = found[output.name]
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), output.name
        if result.dtype.kind in "iu":
            np.testing.assert_array_equal(result, wanted, err_msg=output.name)
        else:
            np.testing.assert_allclose(result, wanted, 2e-5, 2e-6, err_msg=output.name)
