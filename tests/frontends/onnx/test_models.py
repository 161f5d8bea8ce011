"""Whole ONNX models: compiled, run, saved, loaded, explained, compared, and decided again by their own policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import aicf
from aicf.tools.aicf_cli import main
from tests.support.onnx_samples import SAMPLES, mlp, sample_input

DIMS = {"mlp": {"batch": [1, 2]}, "image": {"n": [1, 2]}, "text": {"batch": [1, 2]}}
F = TensorProto.FLOAT


def wanted(name: str, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    if name == "control":  # the reference implementation takes another branch than the standard says
        x = given["x"].astype(np.float64)
        values = (x * x + x) * x
        sums = np.cumsum(np.concatenate([[0.25], values]))[1:]
        return [np.concatenate([values, np.maximum(sums, 0)]) / 2 + sums[-1]]
    return ReferenceEvaluator(SAMPLES[name]()).run(None, given)


def check(name: str, exe: aicf.CompiledModel, batch: int) -> None:
    given = sample_input(name, batch)
    found = exe(given)
    for result, expected in zip(
        found if isinstance(found, tuple) else (found,), wanted(name, given), strict=True
    ):
        np.testing.assert_allclose(np.asarray(result), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str, tmp_path: Path) -> None:
    exe = aicf.compile(SAMPLES[name](), target="cpu", dims=DIMS.get(name))
    exe.save(tmp_path / "m.aicf")
    loaded = aicf.load(tmp_path / "m.aicf")
    for batch in (1, 2):
        check(name, exe, batch)
        check(name, loaded, batch)
    for stage in ("logical", "specialize-shapes", "lower-onnx", "emit"):
        assert loaded.ir(stage) == exe.ir(stage)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for number in (1, 2):
        onnx.save_model(mlp(), tmp_path / "m.onnx")
        aicf.compile(tmp_path / "m.onnx", dims="batch=2").save(tmp_path / f"{number}.aicf")
    assert (tmp_path / "1.aicf").read_bytes() == (tmp_path / "2.aicf").read_bytes()


def test_names_of_nodes_are_ids() -> None:
    exe = aicf.compile(mlp(), target="cpu", dims="batch=2")
    told = str(exe.explain())
    assert "fc1" in told and "soft" in told
    assert "fc2" in str(exe.explain("fc2"))
    assert [entry.name for entry in exe.inputs] == ["x"] and [entry.name for entry in exe.outputs] == ["y"]


def test_inputs_keep_their_symbolic_sizes() -> None:
    exe = aicf.compile(mlp(), target="cpu", dims={"batch": [1, 2]})
    assert exe.inputs[0].shape == ("batch", 16)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """compile, run, explain, diff, policy extract and apply, as of any other model."""
    onnx.save_model(mlp(), tmp_path / "mlp.onnx")
    model, first, second = (str(tmp_path / name) for name in ("mlp.onnx", "1.aicf", "2.aicf"))
    policy = str(tmp_path / "p.yaml")
    assert main(["compile", model, "-o", first, "--dims", "batch=2", "--target", "cpu"]) == 0
    assert main(["policy", "extract", first, "-o", policy]) == 0
    assert main(["policy", "apply", model, policy, "-o", second, "--dims", "batch=2", "--target", "cpu"]) == 0
    capsys.readouterr()
    assert main(["diff", first, second]) == 0
    assert main(["explain", first, "fc1"]) == 0
    assert "fc1" in capsys.readouterr().out
    assert aicf.load(first).ir("emit").count("emit.resolved") == aicf.load(second).ir("emit").count(
        "emit.resolved"
    )
    given = sample_input("mlp")
    np.save(tmp_path / "x.npy", given["x"])
    assert main(["run", second, "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "out")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), wanted("mlp", given)[0], 1e-5, 1e-6)


def test_values_on_the_command_line(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="flat")],
        "values",
        [
            helper.make_tensor_value_info("x", F, ["n", 6]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, ["rank"]),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save_model(model, tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.aicf"), "--dims", "n=2"]
    assert main([*arguments, "--values", '{"shape": [4, 3]}']) == 0
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(aicf.load(tmp_path / "m.aicf")(x)), x.reshape(4, 3))


def test_values_that_do_not_fit() -> None:
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="flat")],
        "values",
        [
            helper.make_tensor_value_info("x", F, [2, 6]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for values, message in (
        ({"shape": [4, 3, 1]}, "values: shape has a dimension of 3, the input is 2xi64"),
        ({"shape": 12}, "values: shape has rank 0, the input is 2xi64, of rank 1"),
        ({"shape": [1.5, 8]}, r"values: \[1.5, 8.0\] is no i64, of which shape is"),
        ({"form": [4, 3]}, "values: there is no input 'form' to bind; inputs are: x, shape"),
        ({"shape": ["a", "b"]}, "values: shape is .*; it is a number, or a list of numbers of one length"),
        ("[4, 3]", "values: it is no dictionary; write inputs and their elements"),
        ("{", "values: cannot read '{'"),
    ):
        with pytest.raises(aicf.PolicyError, match=message):
            aicf.compile(model, target="reference", values=values)


def test_results_that_are_inputs_weights_and_constants() -> None:
    """None of them is computed; each arrives under its own name."""
    weight = np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in ("x", "w", "c")]
    graph = helper.make_graph(
        nodes,
        "aliases",
        [helper.make_tensor_value_info("x", F, [3])],
        [helper.make_empty_tensor_value_info(f"{name}_out") for name in ("x", "w", "c")],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.float32([1, 2]), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.array([1, -2, 3], np.float32)
    for target in ("reference", "cpu"):
        found = aicf.compile(model, target=target)(x)
        for result, expected in zip(found, (x, weight, np.float32([1, 2])), strict=True):
            np.testing.assert_array_equal(np.asarray(result), expected)


def test_weights_that_take_the_place_of_the_models() -> None:
    exe = aicf.compile(mlp(), {"w1": np.zeros((24, 16), np.float32)}, target="reference", dims="batch=1")
    one, two = (exe(sample_input("mlp", 1)), exe({"x": np.ones((1, 16), np.float32)}))
    np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


def test_an_initializer_that_nothing_reads_is_dropped() -> None:
    model = mlp()
    model.graph.initializer.append(numpy_helper.from_array(np.ones((50, 50), np.float32), "unread"))
    assert set(aicf.compile(model, target="reference", dims="batch=1").weights) == {"w1"}


def test_an_input_with_an_initializer_is_a_weight() -> None:
    """Old models list every initializer among the inputs."""
    model = mlp()
    model.graph.input.append(helper.make_tensor_value_info("w1", F, [24, 16]))
    assert [entry.name for entry in aicf.compile(model, target="reference", dims="batch=1").inputs] == ["x"]
