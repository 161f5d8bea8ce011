"""What is wrong with a model is one line that names the place and the way out; nothing crashes and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf

F, I64 = TensorProto.FLOAT, TensorProto.INT64
info = helper.make_tensor_value_info
node = helper.make_node


def model(
    *nodes: onnx.NodeProto, opset: int = 18, constants: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """From x [2, 3] to y."""
    graph = helper.make_graph(
        list(nodes) or [node("Relu", ["x"], ["y"], name="act")],
        "bad",
        [info("x", F, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compile_(given: object) -> None:
    aicf.compile(given, target="reference")  # pyright: ignore[reportArgumentType]


# Files


def test_a_truncated_file(tmp_path: Path) -> None:
    weight = {"w": np.ones((40, 40), np.float32)}
    data = model(node("Add", ["x", "w"], ["y"]), constants=weight).SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[:-100])
    with pytest.raises(
        aicf.InvalidIR, match=r"cut.onnx: no ONNX model, or a truncated one: .*download the model again"
    ):
        compile_(path)


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 64, b"%PDF-1.7 and more of it", b"builtin.module {}", b"PK\x03\x04zip"]
)
def test_a_foreign_file(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign.onnx"
    path.write_bytes(data)
    with pytest.raises(aicf.InvalidIR, match=r"foreign.onnx: no ONNX model"):
        compile_(path)
    with pytest.raises(aicf.InvalidIR, match=r"no ONNX model"):
        compile_(data)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(aicf.InvalidIR, match="none.onnx: cannot read the model: No such file"):
        compile_(tmp_path / "none.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(aicf.InvalidIR, match="folder.onnx: cannot read the model: Is a directory"):
        compile_(tmp_path / "folder.onnx")


def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(
        aicf.InvalidIR, match=r"big.onnx: the file has 2147483648 bytes, .*save_as_external_data=True"
    ):
        compile_(path)


# External data


def external(tmp_path: Path) -> onnx.ModelProto:
    """A model whose weight lies in `w.bin`."""
    weight = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    found = model(node("Add", ["x", "w"], ["y"], name="sum"), constants={"w": weight})
    onnx.save_model(
        found, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    return onnx.load_model(tmp_path / "m.onnx", load_external_data=False)


def test_external_data_is_read(tmp_path: Path) -> None:
    external(tmp_path)
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    weight = np.fromfile(tmp_path / "w.bin", np.float32, 6).reshape(2, 3)
    np.testing.assert_allclose(
        np.asarray(aicf.compile(tmp_path / "m.onnx", target="reference")(x)), x + weight, 1e-6
    )


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    found = external(tmp_path)
    with pytest.raises(
        aicf.InvalidIR, match="initializer 'w' lies in a file beside the model; give the path"
    ):
        compile_(found)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(
        aicf.InvalidIR, match=r"m.onnx: initializer 'w' lies in 'w.bin', and there is no such file"
    ):
        compile_(tmp_path / "m.onnx")


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    external(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"1234")
    with pytest.raises(
        aicf.InvalidIR, match="initializer 'w' ends at byte 24 of w.bin, which has 4; it is truncated"
    ):
        compile_(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "", ".", "a\x00b"]
)
def test_external_data_elsewhere(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(range(24)))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    found = external(folder)
    found.graph.initializer[0].external_data[0].value = location
    onnx.save_model(found, folder / "m.onnx")
    with pytest.raises(
        aicf.InvalidIR, match="initializer 'w' lies in .*(outside of the folder|no such file|no path)"
    ):
        compile_(folder / "m.onnx")


def test_external_data_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(range(24)))
    folder = tmp_path / "model"
    folder.mkdir()
    external(folder)
    (folder / "w.bin").unlink()
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(
        aicf.InvalidIR, match="'w.bin', outside of the folder of the model, directly or by a link"
    ):
        compile_(folder / "m.onnx")


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-4"), ("offset", "9" * 30), ("length", "x"), ("length", "4")]
)
def test_external_data_with_wrong_numbers(key: str, value: str, tmp_path: Path) -> None:
    found = external(tmp_path)
    entries = found.graph.initializer[0].external_data
    for entry in [entry for entry in entries if entry.key == key]:
        entries.remove(entry)
    entries.add(key=key, value=value)
    onnx.save_model(found, tmp_path / "m.onnx")
    with pytest.raises(
        aicf.InvalidIR, match=f"initializer 'w'.*({key} of its external data is|its entry says 4)"
    ):
        compile_(tmp_path / "m.onnx")


# Graphs


def cyclic() -> onnx.ModelProto:
    return model(
        node("Add", ["x", "b"], ["a"], name="first"), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])
    )


def duplicate_values() -> onnx.ModelProto:
    return model(node("Relu", ["x"], ["y"], name="one"), node("Neg", ["x"], ["y"], name="two"))


def unknown_op() -> onnx.ModelProto:
    return model(node("Foo", ["x"], ["y"], name="n"))


def unknown_domain() -> onnx.ModelProto:
    found = model(node("Gelu", ["x"], ["y"], name="n", domain="com.example"))
    found.opset_import.append(helper.make_opsetid("com.example", 3))
    return found


def op_of_onnx_runtime() -> onnx.ModelProto:
    found = model(node("FusedMatMul", ["x", "x"], ["y"], name="n", domain="com.microsoft"))
    found.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return found


def domain_without_opset() -> onnx.ModelProto:
    return model(node("Gelu", ["x"], ["y"], name="n", domain="com.example"))


def dynamic_rank() -> onnx.ModelProto:
    found = model()
    found.graph.input[0].type.tensor_type.ClearField("shape")
    return found


def contradictory_shapes() -> onnx.ModelProto:
    return model(node("Add", ["x", "w"], ["y"], name="sum"), constants={"w": np.ones((4, 5), np.float32)})


def contradictory_ranks() -> onnx.ModelProto:
    return model(
        node("Concat", ["x", "w"], ["y"], name="cat", axis=0), constants={"w": np.ones(4, np.float32)}
    )


def axis_out_of_range() -> onnx.ModelProto:
    return model(node("Softmax", ["x"], ["y"], name="soft", axis=5))


def initializer_that_does_not_fit() -> onnx.ModelProto:
    found = contradictory_shapes()
    found.graph.initializer[0].dims[:] = [7, 7]
    return found


def gigantic_initializer() -> onnx.ModelProto:
    found = contradictory_shapes()
    found.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    return found


def sparse() -> onnx.ModelProto:
    found = model(node("Add", ["x", "w"], ["y"], name="sum"))
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    found.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [6]))
    return found


def sparse_constant() -> onnx.ModelProto:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    value = helper.make_sparse_tensor(values, indices, [6])
    return model(node("Constant", [], ["w"], name="c", sparse_value=value), node("Add", ["x", "w"], ["y"]))


def string_input() -> onnx.ModelProto:
    found = model(node("Identity", ["x"], ["y"]))
    found.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    return found


def string_constant() -> onnx.ModelProto:
    return model(node("Constant", [], ["y"], name="c", value_string="text"))


def sequence_input() -> onnx.ModelProto:
    found = model(node("SequenceAt", ["x", "i"], ["y"]), constants={"i": np.int64(0)})
    found.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, [2])))
    return found


def strange_element_type() -> onnx.ModelProto:
    found = model()
    found.graph.input[0].type.tensor_type.elem_type = 999
    return found


def negative_size() -> onnx.ModelProto:
    found = model()
    found.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -3
    return found


def gigantic_input() -> onnx.ModelProto:
    found = model()
    found.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1 << 50
    return found


def gigantic_result() -> onnx.ModelProto:
    nodes = [node("ConstantOfShape", ["s"], ["c"], name="fill"), node("Add", ["x", "c"], ["y"])]
    return model(*nodes, constants={"s": np.array([1 << 50, 2, 3])})


def duplicate_attribute() -> onnx.ModelProto:
    found = model(node("Softmax", ["x"], ["y"], name="soft", axis=1))
    found.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    return found


def attribute_of_another_type() -> onnx.ModelProto:
    return model(node("Softmax", ["x"], ["y"], name="soft", axis="last"))


def no_outputs() -> onnx.ModelProto:
    found = model()
    del found.graph.output[:]
    return found


def reshape_at_run_time() -> onnx.ModelProto:
    found = model(node("Reshape", ["x", "s"], ["y"], name="flat"))
    found.graph.input.append(info("s", I64, [2]))
    return found


def gigantic_window() -> onnx.ModelProto:
    return model(
        node("HannWindow", ["s"], ["h"], name="window"),
        node("Add", ["x", "h"], ["y"]),
        constants={"s": np.array(1 << 40)},
    )


def split_of_a_scalar() -> onnx.ModelProto:
    found = model(node("Split", ["x"], ["y"], name="split", num_outputs=1))
    del found.graph.input[0].type.tensor_type.shape.dim[:]
    return found


def two_conditions() -> onnx.ModelProto:
    branch = helper.make_graph([node("Neg", ["x"], ["b"])], "branch", [], [info("b", F, [2, 3])])
    choice = node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch)
    return model(choice, constants={"c": np.array([True, False])})


def loop(trips: object) -> Callable[[], onnx.ModelProto]:
    """A loop of that many iterations."""

    def make() -> onnx.ModelProto:
        body = helper.make_graph(
            [node("Add", ["a", "a"], ["twice"]), node("Identity", ["c"], ["next"])],
            "body",
            [info("i", I64, []), info("c", TensorProto.BOOL, []), info("a", F, [2, 3])],
            [info("next", TensorProto.BOOL, []), info("twice", F, [2, 3])],
        )
        again = node("Loop", ["n", "", "x"], ["y"], name="again", body=body)
        return model(again, constants={"n": np.asarray(trips)})

    return make


def deep_indices() -> onnx.ModelProto:
    return model(
        node("GatherND", ["x", "i"], ["y"], name="pick"), constants={"i": np.zeros((1, 3), np.int64)}
    )


def transform_of_nothing() -> onnx.ModelProto:
    found = model(node("DFT", ["x", "n"], ["y"], name="dft", axis=1), constants={"n": np.array(0)})
    found.graph.input[0].CopyFrom(info("x", F, [1, 4, 1]))
    return found


def gigantic_constant() -> onnx.ModelProto:
    return model(node("ConstantOfShape", ["s"], ["y"]), constants={"s": np.array([1 << 50])})


def call_with_too_many_operands() -> onnx.ModelProto:
    found = model(node("own", ["x", "x"], ["y"], name="call", domain="mine"))
    opsets = [helper.make_opsetid("", 18)]
    found.functions.append(
        helper.make_function("mine", "own", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets)
    )
    found.opset_import.append(helper.make_opsetid("mine", 1))
    return found


def opset(version: int) -> Callable[[], onnx.ModelProto]:
    return lambda: model(opset=version)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (cyclic, aicf.InvalidIR, "breaks a rule of ONNX: .*topologically sorted.*first"),
        (duplicate_values, aicf.InvalidIR, "Neg 'two' gives 'y', which Relu 'one' gives too"),
        (unknown_op, aicf.InvalidIR, "No Op registered for Foo with domain_version of 18.*n"),
        (
            unknown_domain,
            aicf.UnsupportedOp,
            r"op 'Gelu' of domain 'com.example' opset 3 is not supported \(node 'n'\); replace it by ops of docs/",
        ),
        (
            op_of_onnx_runtime,
            aicf.UnsupportedOp,
            r"op 'FusedMatMul' of domain 'com.microsoft' opset 1 is not supported \(node 'n'\); ONNX Runtime writes it "
            "where it optimises or quantises: docs/onnx.md says what to bring instead",
        ),
        (domain_without_opset, aicf.InvalidIR, "No opset import for domain 'com.example'.*n"),
        (
            opset(6),
            aicf.UnsupportedOp,
            "opset 6 of ONNX is not supported; 7 to 28 are: convert the model with",
        ),
        (opset(29), aicf.UnsupportedOp, "opset 29 of ONNX is not supported; 7 to 28 are"),
        (opset(-1), aicf.UnsupportedOp, "opset -1 of ONNX is not supported"),
        (dynamic_rank, aicf.UnsupportedOp, "input 'x' has no shape, its rank is dynamic; give it one"),
        (contradictory_shapes, aicf.InvalidIR, "Add 'sum': shapes 2x3 and 4x5 do not broadcast"),
        (contradictory_ranks, aicf.InvalidIR, "Concat 'cat': .*ranks? differ"),
        (axis_out_of_range, aicf.InvalidIR, "Softmax 'soft': axis 5 is out of range for rank 2"),
        (
            initializer_that_does_not_fit,
            aicf.InvalidIR,
            r"initializer 'w' of shape \[7, 7\]|breaks a rule of ONNX.*w",
        ),
        (
            gigantic_initializer,
            aicf.InvalidIR,
            "initializer 'w' has shape .*more than a tensor can|breaks a rule.*w",
        ),
        (sparse, aicf.UnsupportedOp, "initializer 'w' is sparse; store it dense"),
        (
            sparse_constant,
            aicf.UnsupportedOp,
            "Constant 'c': sparse_value is not supported; give a dense tensor",
        ),
        (string_input, aicf.UnsupportedOp, "input 'x' holds strings, which AICF does not compute with"),
        (string_constant, aicf.UnsupportedOp, "Constant 'c': value_string is not supported"),
        (sequence_input, aicf.UnsupportedOp, "input 'x' is of type sequence; inputs are dense tensors"),
        (strange_element_type, aicf.InvalidIR, "input 'x' has element type 999, which ONNX does not define"),
        (
            negative_size,
            aicf.InvalidIR,
            "input 'x': dimension 1 has size -3; a size that is not known has a name",
        ),
        (gigantic_input, aicf.InvalidIR, "input 'x'.*the largest tensor takes"),
        (gigantic_result, aicf.InvalidIR, "Add 'Add_0': .*the largest tensor takes"),
        (duplicate_attribute, aicf.InvalidIR, "soft.*axis|axis.*soft"),
        (attribute_of_another_type, aicf.InvalidIR, "soft.*axis|axis.*soft"),
        (no_outputs, aicf.InvalidIR, "the graph has no outputs"),
        (
            gigantic_window,
            aicf.UnsupportedOp,
            "HannWindow 'window': size is 1099511627776; at most 4194304 elements",
        ),
        (
            split_of_a_scalar,
            aicf.InvalidIR,
            "Split 'split': an operand or attribute has fewer dimensions or entries",
        ),
        (two_conditions, aicf.InvalidIR, "If 'choice': the condition has 2 elements; it has one"),
        (loop(2.5), aicf.InvalidIR, "Loop 'again': the trip count is f64; it is an integer"),
        (loop([2, 3]), aicf.InvalidIR, "Loop 'again': the trip count has 2 elements; it has one"),
        (deep_indices, aicf.InvalidIR, "GatherND 'pick': .* names 3 dimensions, and the data .* has 2"),
        (transform_of_nothing, aicf.InvalidIR, "DFT 'dft': dft_length is 0; it is at least 1"),
        (gigantic_constant, aicf.InvalidIR, "result 'y': .*the largest tensor takes"),
        (
            call_with_too_many_operands,
            aicf.InvalidIR,
            "own 'call': it has 2 operands and 1 results, its function 1 and 1",
        ),
        (
            reshape_at_run_time,
            aicf.UnsupportedOp,
            r"Reshape 'flat': shape .* follows from input 's'.*values={'s': ...}",
        ),
    ],
)
def test_graphs(make: Callable[[], onnx.ModelProto], error: type[aicf.AicfError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        compile_(make())
    assert "\n" not in str(caught.value)


def test_a_node_of_too_many_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicf.passes.onnx.emitters.MAX_OPS", 100)
    found = model(node("Det", ["x"], ["y"], name="volume"))
    found.graph.input[0].CopyFrom(info("x", F, [16, 16]))
    found.graph.output[0].CopyFrom(info("y", F, []))
    with pytest.raises(aicf.UnsupportedOp, match="Det 'volume': it is written out as more than 100 ops"):
        compile_(found)


def test_what_is_wrong_with_a_node_names_the_file(tmp_path: Path) -> None:
    onnx.save_model(contradictory_shapes(), tmp_path / "m.onnx")
    with pytest.raises(
        aicf.InvalidIR, match="m.onnx: Add 'sum': shapes 2x3 and 4x5 do not broadcast"
    ) as caught:
        compile_(tmp_path / "m.onnx")
    assert caught.value.location == str(tmp_path / "m.onnx")


def test_inputs_of_one_name() -> None:
    found = model()
    found.graph.input.append(info("x", F, [2, 3]))
    with pytest.raises(aicf.InvalidIR, match="x"):
        compile_(found)


def test_nodes_of_one_name_are_told_apart() -> None:
    """Names of nodes are for people; ONNX lets several have the same."""
    found = model(node("Relu", ["x"], ["a"], name="act"), node("Neg", ["a"], ["y"], name="act"))
    text = aicf.compile(found, target="reference").ir("logical")
    assert 'aicf.id = "act"' in text and 'aicf.id = "act_1"' in text


@pytest.mark.parametrize("version", [7, 13, 28])
def test_opsets_that_are_read(version: int) -> None:
    x = np.array([[-1, 2, 0.5], [3, -4, 5]], np.float32)
    result = aicf.compile(model(opset=version), target="reference")(x)
    np.testing.assert_array_equal(np.asarray(result), np.maximum(x, 0))
