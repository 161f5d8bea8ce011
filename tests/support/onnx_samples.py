"""Small ONNX models that hold a little of everything: what fuzzing starts from, and what whole-pipeline tests run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
info = helper.make_tensor_value_info


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: Mapping[str, object],
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "sample",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions or [], ir_version=10)


def _weights(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def mlp() -> onnx.ModelProto:
    """Two layers and a softmax, over a batch of any size; one weight is a parameter, the rest constants."""
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1", transB=1),
        node("Relu", ["h"], ["a"], name="act"),
        node("Gemm", ["a", "w2", "b2"], ["z"], name="fc2", alpha=0.5),
        node("Softmax", ["z"], ["y"], name="soft", axis=-1),
    ]
    constants = {"w1": _weights(24, 16), "b1": _weights(24), "w2": _weights(24, 5), "b2": _weights(5)}
    return _model(nodes, [info("x", F, ["batch", 16])], ["y"], constants)


def image() -> onnx.ModelProto:
    """A convolution, a pooling and a flattening whose shape the model computes."""
    nodes = [
        node("Conv", ["x", "k"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["p"], ["s"], name="shape"),
        node("Gather", ["s", "zero"], ["n"], name="pick"),
        node("Concat", ["n", "rest"], ["to"], name="join", axis=0),
        node("Reshape", ["p", "to"], ["f"], name="flat"),
        node("MatMul", ["f", "w"], ["y"], name="fc"),
    ]
    constants = {
        "k": _weights(4, 2, 3, 3),
        "zero": np.array([0]),
        "rest": np.array([-1]),
        "w": _weights(16, 3),
    }
    return _model(nodes, [info("x", F, ["n", 2, 8, 8])], ["y"], constants)


def shapes() -> onnx.ModelProto:
    """Tensors whose sizes are numbers of the model: filled, repeated, cut, padded, resized, counted."""
    nodes = [
        node(
            "ConstantOfShape",
            ["s"],
            ["c"],
            name="fill",
            value=numpy_helper.from_array(np.array([0.5], np.float32)),
        ),
        node("Expand", ["x", "e"], ["x1"], name="expand"),
        node("Tile", ["x1", "t"], ["x2"], name="tile"),
        node("Slice", ["x2", "from", "to", "axes", "steps"], ["x3"], name="slice"),
        node("Pad", ["x3", "pads"], ["x4"], name="pad"),
        node("Range", ["zero", "limit", "one"], ["r"], name="range"),
        node("OneHot", ["r", "depth", "values"], ["h"], name="hot"),
        node("Unsqueeze", ["x4", "axes"], ["x5"], name="wide"),
        node("Resize", ["x5", "", "scales"], ["x6"], name="resize"),
        node("Split", ["x6"], ["a", "b"], name="split", axis=2, num_outputs=2),
        node("ReduceSum", ["h"], ["total"], name="sum", keepdims=0),
        node("Concat", ["a", "b"], ["ab"], name="join", axis=1),
        node("Add", ["ab", "total"], ["y0"], name="plus"),
        node("ReduceMean", ["c"], ["mean"], name="mean", keepdims=0),
        node("Mul", ["y0", "mean"], ["y"], name="times"),
    ]
    constants = {
        "s": np.array([2, 3]),
        "e": np.array([2, 1, 3]),
        "t": np.array([1, 2, 1]),
        "from": np.array([0]),
        "to": np.array([2]),
        "axes": np.array([1]),
        "steps": np.array([1]),
        "pads": np.array([0, 1, 0, 0, 1, 0]),
        "zero": np.int64(0),
        "limit": np.int64(4),
        "one": np.int64(1),
        "depth": np.int64(6),
        "values": np.array([0.0, 1.0], np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    return _model(nodes, [info("x", F, [1, 3])], ["y"], constants)


def control() -> onnx.ModelProto:
    """A loop around a choice, a scan, a sequence, and calls of a function."""
    branch = {
        key: helper.make_graph([node(op, ["v", "x"], ["z"])], key, [], [info("z", F, [3])])
        for key, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    loop = helper.make_graph(
        [
            node("Mod", ["i", "two"], ["odd"]),
            node("Cast", ["odd"], ["flag"], to=B),
            node("If", ["flag"], ["next"], name="choice", **branch),
            node("Identity", ["on"], ["go"]),
        ],
        "loop",
        [info("i", I64, []), info("on", B, []), info("v", F, [3])],
        [info("go", B, []), info("next", F, [3])],
    )
    scan = helper.make_graph(
        [node("Add", ["s", "part"], ["t"]), node("Relu", ["t"], ["out"])],
        "scan",
        [info("s", F, []), info("part", F, [])],
        [info("t", F, []), info("out", F, [])],
    )
    halve = helper.make_function(
        "own",
        "halve",
        ["a"],
        ["b"],
        [
            node("Mul", ["a", "half"], ["b"]),
        ],
        [helper.make_opsetid("", 21)],
    )
    halve.node.insert(0, node("Constant", [], ["half"], value_float=0.5))
    nodes = [
        node("Loop", ["trips", "", "x"], ["w"], name="loop", body=loop),
        node("Scan", ["start", "w"], ["last", "all"], name="scan", body=scan, num_scan_inputs=1),
        node("SequenceConstruct", ["w", "all"], ["seq"]),
        node("ConcatFromSequence", ["seq"], ["joined"], axis=0),
        node("halve", ["joined"], ["h"], domain="own", name="call"),
        node("Add", ["h", "last"], ["y"], name="end"),
    ]
    constants = {"trips": np.int64(3), "start": np.float32(0.25), "two": np.int64(2)}
    return _model(nodes, [info("x", F, [3])], ["y"], constants, [halve])


def text() -> onnx.ModelProto:
    """Embeddings, attention written out, a layer norm, and the largest entries."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"], name="embed"),
        node("LayerNormalization", ["e", "g", "b"], ["n"], name="norm"),
        node("Transpose", ["n"], ["nt"], name="turn", perm=[0, 2, 1]),
        node("MatMul", ["n", "nt"], ["q"], name="scores"),
        node("Softmax", ["q"], ["p"], name="probabilities"),
        node("MatMul", ["p", "n"], ["c"], name="context"),
        node("TopK", ["c", "k"], ["y", "places"], name="top"),
        node("QuantizeLinear", ["c", "scale"], ["c8"], name="narrow"),
        node("DequantizeLinear", ["c8", "scale"], ["y1"], name="widen"),
        node("LSTM", ["c", "wl", "rl"], ["y2"], name="lstm", hidden_size=2),
    ]
    constants = {
        "table": _weights(40, 8),
        "g": _weights(8),
        "b": _weights(8),
        "k": np.array([3]),
        "scale": np.float32(0.05),
        "wl": _weights(1, 8, 8),
        "rl": _weights(1, 8, 2),
    }
    return _model(nodes, [info("ids", I64, ["batch", 4])], ["y", "y1", "y2"], constants)


SAMPLES: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mlp": mlp,
    "image": image,
    "shapes": shapes,
    "control": control,
    "text": text,
}


def sample_input(name: str, batch: int = 2) -> dict[str, np.ndarray]:
    """Random values for the inputs of a sample; `batch` for the sizes that have names."""
    rng = np.random.default_rng(batch)
    found: dict[str, np.ndarray] = {}
    for entry in SAMPLES[name]().graph.input:
        shape = [dim.dim_value or batch for dim in entry.type.tensor_type.shape.dim]
        whole = entry.type.tensor_type.elem_type == I64
        found[entry.name] = (
            rng.integers(0, 40, shape) if whole else rng.standard_normal(shape).astype(np.float32)
        )
    return found
