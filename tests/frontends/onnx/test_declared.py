"""What a model declares of its values is a hint: where it is wrong, what the nodes give holds, with a warning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from aicf.compilation.compiled import CompiledModel

BOOL, FLOAT, INT64, DOUBLE, STRING, UINT32 = (
    TensorProto.BOOL,
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.DOUBLE,
    TensorProto.STRING,
    TensorProto.UINT32,
)
X = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)


def flow(*values: onnx.ValueInfoProto, output: onnx.ValueInfoProto | None = None) -> onnx.ModelProto:
    """y = relu(reshape(x, [3, 4])) + c, with declarations of its values."""
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "shape"], ["r"], name="view"),
            helper.make_node("Relu", ["r"], ["a"], name="act"),
            helper.make_node("Add", ["a", "c"], ["y"], name="sum"),
        ],
        "declared",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 6])],
        [output or helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(np.array([-1, 4]), "shape"),
            numpy_helper.from_array(np.arange(4, dtype=np.float32), "c"),
        ],
        value_info=list(values),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def value(name: str, element: int, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


@pytest.mark.parametrize(
    "declared",
    [
        (),
        (value("r", FLOAT, [3, 4]), value("a", FLOAT, [3, 4])),
        (value("r", FLOAT, ["stale name", 4]), value("a", FLOAT, ["m", "m"])),
        (value("r", FLOAT, [None, None]), value("a", FLOAT, None)),
        (value("r", FLOAT, [0, -1]), value("c", FLOAT, ["m"]), value("x", FLOAT, ["rows", 6])),
        (value("nobody", FLOAT, [7]), value("r", STRING, [3]), value("a", UINT32, [3])),
    ],
    ids=["nothing", "all", "names", "less", "unknown sizes", "not for us"],
)
def test_declarations_that_are_true_or_say_less(declared: Sequence[onnx.ValueInfoProto]) -> None:
    found = aicf.compile(flow(*declared), target="reference", dims="n=2")(X)
    np.testing.assert_array_equal(found, np.maximum(X, 0).reshape(3, 4) + np.arange(4, dtype=np.float32))


WANTED = np.maximum(X, 0).reshape(3, 4) + np.arange(4, dtype=np.float32)


def compiled(
    model: onnx.ModelProto, caplog: pytest.LogCaptureFixture, dims: str | None = "n=2"
) -> CompiledModel:
    """The model, which is compiled with one warning; with `strict` it is refused for the same reason."""
    caplog.clear()
    exe = aicf.compile(model, target="reference", dims=dims)
    (warned,) = caplog.records
    assert warned.name == "aicf.compiler" and warned.levelname == "WARNING"
    assert exe.warnings and exe.warnings[0] in warned.getMessage()
    with pytest.raises(aicf.InvalidIR, match="wrong declaration: .*compile without strict") as caught:
        aicf.compile(model, target="reference", dims=dims, strict=True)
    assert exe.warnings[0] in str(caught.value)
    return exe


@pytest.mark.parametrize("where", ["value_info", "output"])
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (value("r", FLOAT, [3, 5]), "Reshape 'view': output 0 ('r') is 3x4xf32, the model declares 3x5xf32"),
        (
            value("r", FLOAT, ["any", 5]),
            "Reshape 'view': output 0 ('r') is 3x4xf32, the model declares ?x5xf32",
        ),
        (value("a", FLOAT, [12]), "Relu 'act': output 0 ('a') is 3x4xf32, the model declares 12xf32"),
        (value("a", FLOAT, []), "Relu 'act': output 0 ('a') is 3x4xf32, the model declares f32"),
        (value("a", FLOAT, [1, 3, 4]), "Relu 'act': output 0 ('a') is 3x4xf32, the model declares 1x3x4xf32"),
        (value("a", DOUBLE, [3, 4]), "Relu 'act': output 0 ('a') is 3x4xf32, the model declares 3x4xf64"),
        (
            value("a", INT64, None),
            "Relu 'act': output 0 ('a') is 3x4xf32, the model declares i64 of any shape",
        ),
        (
            value("r", FLOAT, ["n", 4]),
            "Reshape 'view': output 0 ('r') is 3x4xf32, the model declares 2x4xf32",
        ),
        (value("y", FLOAT, [4, 3]), "Add 'sum': output 0 ('y') is 3x4xf32, the model declares 4x3xf32"),
        (value("y", FLOAT, ["n", 4]), "Add 'sum': output 0 ('y') is 3x4xf32, the model declares 2x4xf32"),
        (value("y", FLOAT, [1, None]), "Add 'sum': output 0 ('y') is 3x4xf32, the model declares 1x?xf32"),
        (value("y", FLOAT, [3, 4, 1]), "Add 'sum': output 0 ('y') is 3x4xf32, the model declares 3x4x1xf32"),
        (value("y", BOOL, [3, 4]), "Add 'sum': output 0 ('y') is 3x4xf32, the model declares 3x4xi1"),
        (value("x", FLOAT, ["n", 5]), "value 'x' is nx6xf32, the model declares nx5xf32"),
        (value("c", FLOAT, [5]), "value 'c' is 4xf32, the model declares 5xf32"),
        (value("c", INT64, [4]), "value 'c' is 4xf32, the model declares 4xi64"),
    ],
)
def test_what_the_nodes_give_holds(
    declared: onnx.ValueInfoProto, message: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong ranks, sizes, types and names of sizes, of values between nodes, of inputs, weights and outputs."""
    is_output = where == "output"
    model = flow(output=declared) if is_output else flow(declared)
    exe = compiled(model, caplog)
    wanted = {
        "r": X.reshape(3, 4),
        "a": np.maximum(X, 0).reshape(3, 4),
        "x": X,
        "c": np.arange(4.0),
        "y": WANTED,
    }
    np.testing.assert_array_equal(exe(X), wanted[declared.name if is_output else "y"])
    assert exe.warnings == (message,)


def test_each_value_is_told_once_however_many_programs_there_are(caplog: pytest.LogCaptureFixture) -> None:
    model = flow(value("r", FLOAT, [7, 7]), value("a", DOUBLE, None))
    exe = compiled(model, caplog, "n=2,4")
    assert exe.warnings == (
        "Reshape 'view': output 0 ('r') is 3x4xf32, the model declares 7x7xf32",
        "Relu 'act': output 0 ('a') is 3x4xf32, the model declares f64 of any shape",
    )
    assert "lower-onnx of view: the inferred type holds" in str(exe.explain("view"))


def test_an_artifact_keeps_the_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exe = compiled(flow(value("c", FLOAT, [5]), value("r", FLOAT, [5])), caplog)
    exe.save(tmp_path / "model.aicf")
    assert aicf.load(tmp_path / "model.aicf").warnings == exe.warnings and len(exe.warnings) == 2


def test_two_declarations_of_one_value(caplog: pytest.LogCaptureFixture) -> None:
    exe = compiled(flow(value("y", FLOAT, [None, 4]), output=value("y", FLOAT, [3, 5])), caplog)
    np.testing.assert_array_equal(exe(X), WANTED)
    assert exe.warnings == (
        "value 'y' is declared twice, as ?x4xf32 and as 3x5xf32",
        "Add 'sum': output 0 ('y') is 3x4xf32, the model declares 3x5xf32",
    )


def test_an_initializer_that_is_listed_as_another_input(caplog: pytest.LogCaptureFixture) -> None:
    wrong = flow()
    wrong.graph.input.append(value("c", FLOAT, [3]))
    exe = compiled(wrong, caplog)
    np.testing.assert_array_equal(exe(X), WANTED)
    assert exe.warnings == ("value 'c' is 4xf32, the model declares 3xf32",)


def test_values_of_bodies(caplog: pytest.LogCaptureFixture) -> None:
    """A body declares its own values, and may be right about one iteration alone."""
    nodes = [
        helper.make_node("Concat", ["v", "x"], ["longer"], name="grow", axis=0),
        helper.make_node("Identity", ["going"], ["still"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", INT64, []), value("going", BOOL, []), value("v", FLOAT, [9, 9])],
        [value("still", BOOL, []), value("longer", FLOAT, [4, 6])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)],
        "looping",
        [value("x", FLOAT, ["n", 6])],
        [value("y", FLOAT, [4, 6])],
        [numpy_helper.from_array(np.array(2), "trips")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = compiled(model, caplog)
    np.testing.assert_array_equal(exe(X), np.concatenate([X, X, X]))
    assert exe.warnings == (
        "Concat 'grow': output 0 ('longer') is 6x6xf32, the model declares 4x6xf32",
        "Loop 'loop': output 0 ('y') is 6x6xf32, the model declares 4x6xf32",
    )


def test_values_of_functions(caplog: pytest.LogCaptureFixture) -> None:
    """Sizes that a function names are its own; a result that is an operand has the type of the operand."""
    function = helper.make_function(
        "own",
        "twice",
        ["a"],
        ["a", "c"],
        [
            helper.make_node("Neg", ["a"], ["b"], name="minus"),
            helper.make_node("Sub", ["a", "b"], ["c"], name="sub"),
        ],
        [helper.make_opsetid("", 17)],
        value_info=[value("b", FLOAT, ["n", 5]), value("c", FLOAT, ["other", "n"])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["p"], name="abs"),
            helper.make_node("twice", ["p"], ["q", "y"], domain="own", name="call"),
            helper.make_node("Add", ["p", "q"], ["z"], name="both"),
        ],
        "calling",
        [value("x", FLOAT, ["n", 6])],
        [value("y", FLOAT, [2, 7]), value("z", FLOAT, ["n", 6])],
        value_info=[value("q", FLOAT, [6])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    exe = compiled(model, caplog)
    y, z = exe(X)
    np.testing.assert_array_equal(y, 2 * np.abs(X))
    np.testing.assert_array_equal(z, 2 * np.abs(X))
    assert exe.warnings == (
        "Abs 'abs': output 0 ('q') is 2x6xf32, the model declares 6xf32",
        "Neg 'call/minus': output 0 ('b') is 2x6xf32, the model declares ?x5xf32",
        "Sub 'call/sub': output 0 ('y') is 2x6xf32, the model declares 2x7xf32",
    )


def test_a_session_warns_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """However many programs it makes, or finds in the cache; what it says of outputs is what they are."""
    model = flow(value("r", DOUBLE, [1, 1]), output=value("y", FLOAT, ["n", 4]))
    for _ in range(2):
        with aicf.InferenceSession(model, device="reference", cache_dir=tmp_path) as session:
            assert session.output_info[0].shape == ("n", 4)
            for rows in (2, 4, 6):
                x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
                wanted = np.maximum(x, 0).reshape(-1, 4) + np.arange(4, dtype=np.float32)
                np.testing.assert_array_equal(session.run([x])["y"], wanted)
            (event,) = session.report.of("declared")
            assert "Reshape 'view'" in event.detail and "and 1 more" in event.detail
            assert session.output_info[0].shape == ("?", 4)
    with aicf.InferenceSession(model, device="reference", dims="n=2,4", strict=False) as session:
        assert len(session.report.of("declared")) == 1
    message = "Reshape 'view': output 0 .* declares 1x1xf64"
    with pytest.raises(aicf.InvalidIR, match=message):
        aicf.InferenceSession(model, device="reference", dims="n=2,4", strict=True)


def test_strict_is_about_onnx_models(tmp_path: Path) -> None:
    graph = aicf.Graph("plain")
    graph.output(graph.relu(graph.input("x", (2,))), "y")
    for make in (aicf.compile, aicf.InferenceSession):
        with pytest.raises(aicf.PolicyError, match="strict: only ONNX models"):
            make(graph, strict=True)
    with pytest.raises(aicf.PolicyError, match="strict: only ONNX models"):
        aicf.train_step(graph, "mse", aicf.optimizers.SGD(0.1), strict=True)
    aicf.compile(graph, target="reference").save(tmp_path / "plain.aicf")
    with pytest.raises(aicf.PolicyError, match="strict= has no effect on a compiled model"):
        aicf.InferenceSession(tmp_path / "plain.aicf", strict=True)


def test_training_says_it_too(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")]
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32), "w")
    graph = helper.make_graph(
        nodes, "net", [value("x", FLOAT, ["n", 6])], [value("y", FLOAT, ["n", 4])], [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    aicf.train_step(model, "mse", aicf.optimizers.SGD(0.1), target="reference", dims="n=2")
    (warned,) = caplog.records
    declared = "MatMul 'fc': output 0 ('y') is 2x3xf32, the model declares 2x4xf32"
    assert declared in warned.getMessage()
    with pytest.raises(aicf.InvalidIR, match="wrong declaration: .*compile without strict") as caught:
        aicf.train_step(model, "mse", aicf.optimizers.SGD(0.1), target="reference", dims="n=2", strict=True)
    assert declared in str(caught.value)
    model.graph.output[0].CopyFrom(value("y", FLOAT, ["n", 3]))
    aicf.train_step(model, "mse", aicf.optimizers.SGD(0.1), target="reference", dims="n=2", strict=True)
    assert caplog.records == [warned]


def test_one_name_with_two_sizes() -> None:
    """A size of one name is one size; a call in which it is two names both inputs."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["b"], ["z"])],
        "pair",
        [value("a", FLOAT, ["n", 2]), value("b", FLOAT, ["n", 3])],
        [value("y", FLOAT, ["n", 2]), value("z", FLOAT, ["n", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    a, b = np.ones((2, 2), np.float32), np.ones((3, 3), np.float32)
    message = "n is 2 in input 'a', 3 in 'b'"
    with aicf.InferenceSession(model) as session, pytest.raises(aicf.InputMismatch, match=message):
        session.run([a, b])
    with pytest.raises(aicf.InputMismatch, match=message):
        aicf.compile(model, target="reference", dims="n=2,3")(a, b)
