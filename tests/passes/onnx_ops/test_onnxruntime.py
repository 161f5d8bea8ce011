"""Models of many nodes with random shapes, types and attributes, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.support.onnx_models import expect_model

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers

Array = NDArray[Any]
OPSET = 20
FLOATS, WHOLE = ("f4", "f8"), ("i4", "i8")
NUMBERS = (*FLOATS, *WHOLE)


@dataclass
class Nodes:
    """Random nodes under construction, each with inputs of its own."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    given: dict[str, Array] = field(default_factory=dict)
    known: dict[str, Array] = field(default_factory=dict)

    def add(
        self, op_type: str, *operands: Array, known: int = 0, outputs: int = 1, **attributes: Any
    ) -> None:
        """A node; its last ``known`` operands are initializers."""
        number, names = len(self.nodes), list[str]()
        for place, operand in enumerate(operands):
            names.append(f"x{number}_{place}")
            held = self.known if place >= len(operands) - known else self.given
            held[names[-1]] = np.array(operand, order="C")
        results = [f"y{number}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(op_type, names, results, f"node{number}", **attributes))

    def whole(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high))

    def choice(self, *items: Any) -> Any:
        return items[self.whole(0, len(items))]

    def shape(self, low: int = 1) -> tuple[int, ...]:
        return tuple(self.whole(1, 5) for _ in range(self.whole(low, 5)))

    def beside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to another."""
        sizes = [self.choice(1, size, size) for size in shape]
        return tuple(sizes[self.whole(0, len(sizes) + 1) :])

    def array(self, dtype: str, shape: tuple[int, ...]) -> Array:
        if dtype == "?":
            return np.asarray(self.random.random(shape) > 0.5)
        if dtype in FLOATS:
            return np.asarray(self.random.normal(size=shape) * 2).astype(dtype)
        return self.random.integers(-20, 20, shape).astype(dtype)

    def places(self, size: int, shape: tuple[int, ...]) -> Array:
        return self.random.integers(-size, size, shape).astype(self.choice(*WHOLE))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "random_nodes",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.given.items()
            ],
            [helper.make_empty_tensor_value_info(name) for node in self.nodes for name in node.output],
            [numpy_helper.from_array(array, name) for name, array in self.known.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _elementwise(n: Nodes) -> None:
    shape = n.shape()
    for op_type in ("Add", "Sub", "Mul", "Max", "Min", "Less", "Greater", "Equal", "LessOrEqual"):
        dtype = n.choice(*NUMBERS)
        n.add(op_type, n.array(dtype, shape), n.array(dtype, n.beside(shape)))
    for op_type in ("Div", "Mod"):
        dtype = n.choice(*WHOLE)
        divisor = n.array(dtype, n.beside(shape))
        n.add(op_type, n.array(dtype, shape), np.where(divisor == 0, 3, divisor).astype(dtype))
    dtype = n.choice(*FLOATS)
    n.add("Mod", n.array(dtype, shape), n.array(dtype, n.beside(shape)), fmod=1)
    n.add("Where", n.array("?", n.beside(shape)), n.array(dtype, shape), n.array(dtype, n.beside(shape)))
    n.add("Pow", np.abs(n.array("f4", shape)), n.array(n.choice(*NUMBERS), n.beside(shape)) / 4)
    n.add("Pow", n.array("i8", shape), np.abs(n.array("i4", n.beside(shape))) % 5)
    n.add("Cast", np.abs(n.array(n.choice(*NUMBERS), shape)), to=n.choice(1, 2, 3, 6, 7, 9, 10, 11))


def _activations(n: Nodes) -> None:
    options: Mapping[str, Mapping[str, Any]] = {
        "Celu": {"alpha": 0.7},
        "Gelu": {"approximate": n.choice("none", "tanh")},
        "Shrink": {"lambd": 0.4, "bias": 0.1},
        "ThresholdedRelu": {"alpha": 0.3},
    }
    for op_type in (
        "Elu",
        "Selu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Softplus",
        "Softsign",
        *options,
    ):
        n.add(op_type, n.array("f4", n.shape()), **options.get(op_type, {}))
    shape = n.shape()
    n.add("PRelu", n.array("f4", shape), n.array("f4", n.beside(shape)))


def _reductions(n: Nodes) -> None:
    shape = n.shape()
    axis, rank = n.whole(-len(shape), len(shape)), len(shape)
    for op_type in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"):
        x = np.abs(n.array("f4", shape)) if op_type == "LogSum" else n.array("f4", shape)
        axes = np.array(sorted({n.whole(-rank, 0) for _ in range(n.whole(1, rank + 1))}))
        n.add(f"Reduce{op_type}", x, axes, known=1, keepdims=n.whole(0, 2))
    options = {"axis": axis, "keepdims": n.whole(0, 2), "select_last_index": n.whole(0, 2)}
    n.add(n.choice("ArgMax", "ArgMin"), n.array("i4", shape) % 3, **options)
    flags = {"exclusive": n.whole(0, 2), "reverse": n.whole(0, 2)}
    n.add("CumSum", n.array(n.choice(*NUMBERS), shape), np.array(axis), known=1, **flags)
    order = n.random.permutation(int(np.prod(shape))).reshape(shape).astype(n.choice("f4", "i8"))
    count = np.array([n.whole(1, shape[axis] + 1)])
    n.add("TopK", order, count, known=1, outputs=2, axis=axis, largest=n.whole(0, 2))


def _moves(n: Nodes) -> None:
    shape = n.shape()
    rank, x = len(shape), n.array("f4", shape)
    count = n.whole(1, rank + 1)
    axes, steps = n.random.permutation(rank)[:count], n.random.choice([-3, -2, -1, 1, 2, 3], count)
    starts, ends = (n.random.integers(-7, 8, count) for _ in range(2))
    n.add("Slice", x, starts, ends, axes, steps, known=4)
    mode = n.choice("constant", "reflect", "edge", "wrap")
    most = np.array(shape * 2) - (mode == "reflect")
    n.add("Pad", x, np.minimum(n.random.integers(0, 3, 2 * rank), most), known=1, mode=mode)
    n.add("Tile", x, n.random.integers(1, 4, rank), known=1)
    n.add("Expand", n.array("f4", n.beside(shape)), np.array(shape), known=1)
    n.add("Transpose", x, perm=n.random.permutation(rank).tolist())
    matrix = n.array("f4", (*shape, 3, 4))
    n.add("Trilu", matrix, np.array(n.whole(-4, 5)), upper=n.whole(0, 2))
    batch = n.whole(0, 2)
    lengths = n.random.integers(1, 4 if batch else 5, 4 if batch else 3)
    n.add("ReverseSequence", n.array("f4", (3, 4, 2)), lengths, batch_axis=batch, time_axis=1 - batch)


def _places(n: Nodes) -> None:
    shape = n.shape()
    rank, x = len(shape), n.array("f4", shape)
    axis = n.whole(-rank, rank)
    n.add("Gather", x, n.places(shape[axis], n.shape(0)[:2]), axis=axis)
    along = list(shape)
    along[axis] = n.whole(1, 6)
    updated = tuple(along)
    n.add("GatherElements", x, n.places(shape[axis], updated), axis=axis)
    combine = n.choice("add", "mul", "max", "min")
    options = {"axis": axis, "reduction": combine}
    n.add(
        "ScatterElements", x, n.places(shape[axis], updated).astype("i8"), n.array("f4", updated), **options
    )
    batch = n.whole(0, rank)
    depth = n.whole(1, rank - batch + 1)
    outer = (*shape[:batch], *n.shape()[:2])
    named = [n.places(shape[batch + dim], outer).astype("i8") for dim in range(depth)]
    n.add("GatherND", x, np.stack(named, -1), batch_dims=batch)
    rows = np.stack([n.places(size, (3,)).astype("i8") for size in shape[:depth]], -1)
    n.add("ScatterND", x, rows, n.array("f4", (3, *shape[depth:])), reduction=combine)
    size = n.whole(1, 7)
    hot, values = n.random.integers(-size - 2, size + 2, shape), np.array([2, 5], "f4")
    n.add("OneHot", hot, np.array(size), values, known=2, axis=n.whole(-rank - 1, rank + 1))


FAMILIES: Mapping[str, Callable[[Nodes], None]] = {
    "elementwise": _elementwise,
    "activations": _activations,
    "reductions": _reductions,
    "moves": _moves,
    "places": _places,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_same_results(family: str, seed: int) -> None:
    nodes = Nodes(np.random.default_rng(seed))
    FAMILIES[family](nodes)
    model = nodes.model()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, nodes.given)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    expect_model(model, nodes.given, wanted, rtol=2e-5, atol=2e-5, targets=("cpu",))
