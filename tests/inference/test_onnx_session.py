"""Sessions of ONNX models: sizes and values that programs are made for, against package onnx's own reference."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from aicf import InferenceSession
from aicf.errors import InputMismatch, PolicyError, ValueNeeded
from tests.inference.models import rows

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WEIGHT = rows(24, 600, seed=5)


def model(nodes: list[Any], inputs: list[Any], outputs: list[str], **tensors: np.ndarray) -> onnx.ModelProto:
    """A model of opset 17; inputs are (name, type, sizes), outputs any float."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(*entry) for entry in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mlp() -> onnx.ModelProto:
    """softmax(relu(x W)), for any batch."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"], "fc"),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("Softmax", ["r"], ["y"], "prob", axis=-1),
    ]
    return model(nodes, [("x", FLOAT, ["batch", 24])], ["y"], W=WEIGHT)


def reshaped() -> onnx.ModelProto:
    """x, in the shape that another input says, times 2."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["z"], "fold"),
        helper.make_node("Add", ["z", "z"], ["y"], "twice"),
    ]
    return model(nodes, [("x", FLOAT, ["n"]), ("shape", INT64, ["rank"])], ["y"])


def branching() -> onnx.ModelProto:
    """x + 1 at a rate of 16000, else x * x."""
    one = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["a"], "plus")],
        "then",
        [],
        [helper.make_empty_tensor_value_info("a")],
    )
    other = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["b"], "square")],
        "else",
        [],
        [helper.make_empty_tensor_value_info("b")],
    )
    nodes = [
        helper.make_node("Equal", ["rate", "wide"], ["is_wide"], "compare"),
        helper.make_node("If", ["is_wide"], ["y"], "choose", then_branch=one, else_branch=other),
    ]
    tensors = {"one": np.float32([1]), "wide": np.int64(16000)}
    return model(nodes, [("x", FLOAT, ["n"]), ("rate", INT64, [])], ["y"], **tensors)


def wanted(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return ReferenceEvaluator(proto).run(None, feeds)[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mlp.onnx"
    onnx.save(mlp(), file)
    return file


def test_a_file_is_served_for_any_batch(path: Path) -> None:
    with InferenceSession(path, dims={"batch": 4}) as session:
        assert [(spec.name, spec.shape, spec.dtype) for spec in session.input_info] == [
            ("x", ("batch", 24), "f32")
        ]
        for count in (4, 1, 9):
            feeds = {"x": rows(count, 24, seed=count)}
            np.testing.assert_allclose(session.run(feeds)["y"], wanted(mlp(), feeds), rtol=1e-4, atol=1e-6)
        assert [event.program for event in session.report.of("compiled")] == ["batch=1", "batch=9"]
        assert set(session.profile([rows(4, 24)], repeats=2).by_source()) == {"fc", "act", "prob"}
        assert session.memory.weights == WEIGHT.nbytes


def test_a_cached_program_serves_the_next_session(path: Path, tmp_path: Path) -> None:
    feeds = {"x": rows(3, 24)}
    for what in ("compiled", "loaded"):
        with InferenceSession(path, cache_dir=tmp_path / "cache") as session:
            np.testing.assert_allclose(session.run(feeds)["y"], wanted(mlp(), feeds), rtol=1e-4, atol=1e-6)
            assert [event.program for event in session.report.of(what)] == ["batch=3"]


def test_bytes_and_protos_are_models_too() -> None:
    feeds = {"x": rows(2, 24)}
    for source in (mlp(), mlp().SerializeToString()):
        with InferenceSession(source, device="reference") as session:
            np.testing.assert_allclose(session.run(feeds)["y"], wanted(mlp(), feeds), rtol=1e-4, atol=1e-6)


def test_outputs_are_what_the_model_declares() -> None:
    """Sizes of inputs go by our names, others by `?`; what is declared wrongly is corrected by the first program."""
    proto = mlp()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch size"
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["batch size", 600]))
    with InferenceSession(proto) as session:
        assert session.input_info[0].shape == ("batch_size", 24)
        assert (session.output_info[0].dtype, session.output_info[0].shape) == ("f32", ("batch_size", 600))
        session.run([rows(2, 24)])
        assert session.output_info[0].shape == ("batch_size", 600)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["rows", None]))
    with InferenceSession(proto) as session:
        assert session.output_info[0].shape == ("?", "?")
        session.run([rows(2, 24)])
        assert session.output_info[0].shape == ("?", "?")
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["rows", 599]))
    with InferenceSession(proto) as session:
        assert session.output_info[0].shape == ("?", 599)
        session.run([rows(2, 24)])
        assert session.output_info[0].shape == ("?", 600)
        (event,) = session.report.of("declared")
        assert "Softmax 'prob': output 0 ('y') is 2x600xf32, the model declares ?x599xf32" in event.detail


def test_an_undeclared_output_is_known_after_the_first_program() -> None:
    with InferenceSession(mlp()) as session:
        session.run([rows(2, 24)])
        (spec,) = session.output_info
        assert (spec.name, spec.dtype, spec.shape[-1]) == ("y", "f32", 600)


def test_a_shape_that_is_an_input_is_followed() -> None:
    """The first call finds out; each value is a program of its own."""
    with InferenceSession(reshaped()) as session:
        for shape in ([2, 3], [3, 2], [6, 1], [2, 3]):
            feeds = {"x": rows(6), "shape": np.array(shape)}
            found = session.run(feeds)["y"]
            assert found.shape == tuple(shape)
            np.testing.assert_array_equal(found, wanted(reshaped(), feeds))
        (event,) = session.report.of("followed")
        assert event.detail.startswith("programs are made for the value of 'shape': ")
        programs = ["n=6, rank=2, shape=[2, 3]", "n=6, rank=2, shape=[3, 2]", "n=6, rank=2, shape=[6, 1]"]
        assert [event.program for event in session.report.of("compiled")] == programs
        with pytest.raises(
            InputMismatch, match=r"input 'shape': expected i64\[2\], got i32\[2\]; convert it"
        ):
            session.run({"x": rows(6), "shape": np.array([2, 3], np.int32)})


def test_a_branch_follows_a_scalar() -> None:
    """One program for each rate, whatever the numbers of x; a binding follows it too."""
    with InferenceSession(branching()) as session:
        for rate in (16000, 8000, 16000):
            feeds = {"x": rows(5, seed=rate), "rate": np.array(rate)}
            np.testing.assert_array_equal(session.run(feeds)["y"], wanted(branching(), feeds))
        labels = ["n=5, rate=16000", "n=5, rate=8000"]
        assert [event.program for event in session.report.of("compiled")] == labels
        session.warm_up(feeds={"x": rows(5), "rate": np.array(8000)})
        binding = session.bind(x=rows(5), rate=np.array(8000))
        binding.run()
        np.testing.assert_array_equal(binding["y"], rows(5) ** 2)
        binding.bind(rate=np.array(16000)).run()
        np.testing.assert_array_equal(binding["y"], rows(5) + np.float32(1))


def test_threads_that_come_first_together_are_all_served() -> None:
    """They learn together that programs follow from the rate, each at a rate of its own."""
    with InferenceSession(branching(), device="reference") as session:
        gate = threading.Barrier(8)

        def work(number: int) -> None:
            gate.wait()
            x = rows(5, seed=number)
            for rate in (16000, number):
                found = session.run({"x": x, "rate": np.array(rate)})["y"]
                np.testing.assert_array_equal(found, x + np.float32(1) if rate == 16000 else x * x)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, number) for number in range(8)]:
                done.result()
        assert len(session.report.of("followed")) == 1
        assert len(session.report.of("compiled")) == 9


def test_values_that_are_given_ahead_may_be_left_out() -> None:
    with InferenceSession(branching(), dims="n=5", values={"rate": 8000}) as session:
        assert session.report.of("followed") == ()
        x = rows(5)
        for feeds in ({"x": x}, [x], {"x": x, "rate": np.array(8000)}, [x, np.array(8000)]):
            np.testing.assert_array_equal(session.run(feeds)["y"], x * x)
        binding = session.bind(x=x)
        binding.run()
        np.testing.assert_array_equal(binding["y"], x * x)
        assert session.report.of("compiled") == ()
        np.testing.assert_array_equal(session.run({"x": x, "rate": np.array(16000)})["y"], x + np.float32(1))
        assert [event.program for event in session.report.of("compiled")] == ["n=5, rate=16000"]


def test_values_settle_sizes() -> None:
    """The shape of a value is a size of the model: nothing else must be given ahead for it."""
    with InferenceSession(reshaped(), dims="n=6", values={"shape": [3, 2]}) as session:
        assert [program.label for program in session._session._programs.all] == ["n=6, rank=2, shape=[3, 2]"]
        assert session.run([rows(6)])["y"].shape == (3, 2)


def test_a_fixed_model_waits_for_its_first_value() -> None:
    """Nothing can be made when it opens."""
    proto = reshaped()
    for entry, size in zip(proto.graph.input, (6, 2), strict=True):
        entry.type.tensor_type.shape.dim[0].dim_value = size
    with InferenceSession(proto) as session:
        (event,) = session.report.of("followed")
        assert event.detail.startswith("programs wait for the value of 'shape': ")
        assert session.run([rows(6), np.array([2, 3])])["y"].shape == (2, 3)


@pytest.mark.parametrize("count", ["n", 65, 64])
def test_large_inputs_are_not_followed(count: str | int) -> None:
    """Neither by the first call nor where the sizes are known when the session opens."""
    proto = model([helper.make_node("Unique", ["x"], ["y"], "uq")], [("x", FLOAT, [count])], ["y"])
    if count == 65:
        with pytest.raises(ValueNeeded, match="Unique 'uq': .* follows from input 'x' at run time"):
            InferenceSession(proto)
        return
    with InferenceSession(proto) as session:
        x = rows(64)
        np.testing.assert_array_equal(session.run([x])["y"], np.unique(x))
    if count == "n":
        with InferenceSession(proto) as session, pytest.raises(ValueNeeded, match="Unique 'uq'"):
            session.run([rows(65)])
        with InferenceSession(proto, dims={"n": 65}) as session:
            with pytest.raises(InputMismatch, match="input 'x' has 65 elements, .*: at most 64 are followed"):
                session.run([rows(65)])
            assert session.report.of("compiled") == ()


def test_wrong_values_say_what_is_wrong() -> None:
    with pytest.raises(PolicyError, match="values: there is no input 'rat' to bind; inputs are: x, rate"):
        InferenceSession(branching(), values={"rat": 1})
    with pytest.raises(PolicyError, match="values: rate has rank 1"):
        InferenceSession(branching(), dims="n=2", values={"rate": [1, 2]})
    with pytest.raises(PolicyError, match="values: x has rank 0, the input is nxf32, of rank 1"):
        InferenceSession(branching(), values={"x": 1})  # no program is made yet, and none would tell
    with InferenceSession(reshaped()) as session, pytest.raises(ValueNeeded, match="'fold'"):
        session.run([rows(6), np.ones(100, np.int64)])
