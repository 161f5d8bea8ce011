"""Outputs that nothing computes: inputs, initializers, and values that have several names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import aicf
from aicf.tools.aicf_cli import main

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(5)
WEIGHTS = {
    "small": RNG.standard_normal((2, 3)).astype(np.float32),
    "large": RNG.standard_normal((40, 30)).astype(np.float32),
}
X = RNG.standard_normal((2, 3)).astype(np.float32)
RELU = helper.make_node("Relu", ["x"], ["y"])


def info(name: str) -> onnx.ValueInfoProto:
    """Of the inputs, the weights and y; what else is an output declares nothing."""
    if name not in ("x", "y", *WEIGHTS):
        return helper.make_empty_tensor_value_info(name)
    shape = list(WEIGHTS[name].shape) if name in WEIGHTS else ["n", 3]
    return helper.make_tensor_value_info(name, FLOAT, shape)


def model(
    outputs: list[str], *nodes: onnx.NodeProto, inputs: tuple[str, ...] = ("x",), ir: int = 8
) -> onnx.ModelProto:
    """Some of x, y = relu(x) and the weights are outputs."""
    weights = [numpy_helper.from_array(value, name) for name, value in WEIGHTS.items()]
    graph = helper.make_graph(
        [RELU, *nodes],
        "direct",
        [info(name) for name in inputs],
        [info(name) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir)


CASES = {
    "input": model(["x"]),
    "input beside a result": model(["x", "y"]),
    "small initializer": model(["small", "y"]),
    "large initializer": model(["y", "large"]),
    "large initializer that is read": model(
        ["z", "large"],
        helper.make_node("ReduceSum", ["large"], ["s"], keepdims=0),
        helper.make_node("Add", ["y", "s"], ["z"]),
    ),
    "one value twice": model(["y", "z"], helper.make_node("Identity", ["y"], ["z"])),
    "one input thrice": model(
        ["a", "x", "b"],
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
    ),
    "large initializer twice": model(["large", "z"], helper.make_node("Identity", ["large"], ["z"])),
    "initializers listed as inputs": model(
        ["z", "large", "small"],
        helper.make_node("Add", ["y", "small"], ["z"]),
        inputs=("x", "small", "large"),
        ir=3,
    ),
}


def wanted(flow: onnx.ModelProto) -> dict[str, np.ndarray]:
    """By the names of our results: an output that is the input `x` is `x_out`."""
    results = ReferenceEvaluator(flow).run(None, {"x": X})
    names = ["x_out" if entry.name == "x" else entry.name for entry in flow.graph.output]
    return dict(zip(names, results, strict=True))


def check(found: dict[str, np.ndarray], flow: onnx.ModelProto) -> None:
    expected = wanted(flow)
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_compiled(name: str, target: str) -> None:
    exe = aicf.compile(CASES[name], target=target, dims="n=2")
    results = exe(X)
    listed = results if isinstance(results, tuple) else (results,)
    check(
        {spec.name: np.asarray(value) for spec, value in zip(exe.outputs, listed, strict=True)}, CASES[name]
    )


@pytest.mark.parametrize("name", CASES)
def test_in_a_session(name: str) -> None:
    """Results are memory of their own: a caller who writes into one changes no weight."""
    with aicf.InferenceSession(CASES[name]) as session:
        first = session.run({"x": X})
        check(first, CASES[name])
        for value in first.values():
            value[...] = -1
        check(session.run({"x": X}), CASES[name])
        assert [spec.name for spec in session.output_info] == list(wanted(CASES[name]))


def test_from_the_command_line(tmp_path: Path) -> None:
    path, given, out = tmp_path / "direct.onnx", tmp_path / "x.npy", tmp_path / "out"
    flow = CASES["one input thrice"]
    onnx.save(flow, path)
    np.save(given, X)
    assert main(["run", str(path), "--input", f"x={given}", "--output", str(out)]) == 0
    check({name: np.load(out / f"{name}.npy") for name in wanted(flow)}, flow)


def test_the_name_of_a_result_is_not_taken_from_another() -> None:
    flow = model(["x", "x_out"], helper.make_node("Neg", ["x"], ["x_out"]))
    exe = aicf.compile(flow, target="reference", dims="n=2")
    assert [spec.name for spec in exe.outputs] == ["x_out_1", "x_out"]
    for found, expected in zip(exe(X), (X, -X), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_weights_that_take_the_place_of_an_output() -> None:
    """The name of the initializer is the result's; its values go by the next name."""
    flow = CASES["large initializer"]
    other = -WEIGHTS["large"]
    found = aicf.compile(flow, {"large_1": other}, target="reference", dims="n=2")(X)
    np.testing.assert_array_equal(found[1], other)


def test_one_name_twice() -> None:
    with pytest.raises(aicf.InvalidIR, match="output 'y' is listed twice; .* by an Identity node"):
        aicf.compile(model(["y", "y"]), target="reference", dims="n=2")
