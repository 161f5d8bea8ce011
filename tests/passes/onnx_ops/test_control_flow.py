"""If, Loop and Scan whose conditions and trip counts are known, and the errors of those that are not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from tests.support.onnx_models import expect_model

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "flow",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def body(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


def branch(op_type: str, *operands: str) -> onnx.GraphProto:
    return body(
        [helper.make_node(op_type, list(operands), ["z"], name=f"inner {op_type}")],
        [],
        [helper.make_empty_tensor_value_info("z")],
    )


@pytest.mark.parametrize("condition", [True, False])
def test_if_of_a_known_condition(condition: bool) -> None:
    node = helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="choice",
        then_branch=branch("Add", "x", "x"),
        else_branch=branch("Relu", "x"),
    )
    flow = model([node], [info("x", F, [3])], ["y"], {"c": np.array(condition)})
    expect_model(flow, {"x": np.array([-1.5, 2, 3], np.float32)})


def test_if_of_a_condition_at_run_time() -> None:
    node = helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="choice",
        then_branch=branch("Add", "x", "x"),
        else_branch=branch("Relu", "x"),
    )
    flow = model([node], [info("c", B, []), info("x", F, [3])], ["y"])
    with pytest.raises(
        aicf.UnsupportedOp, match=r"If 'choice': the condition .*from input 'c' at run time.*values={'c'"
    ):
        aicf.compile(flow, target="reference")
    exe = aicf.compile(flow, target="reference", values={"c": False})
    np.testing.assert_array_equal(exe(np.array([-1, 0.5, 2], np.float32)), [0, 0.5, 2])


def loop(trips: int | None, limit: int) -> onnx.ModelProto:
    """Adds x to a sum and gives all sums; goes on while the number of the iteration is not the limit."""
    inner = body(
        [
            helper.make_node("Add", ["sum", "x"], ["next"], name="step"),
            helper.make_node("Add", ["i", "one"], ["j"]),
            helper.make_node("Equal", ["j", "limit"], ["last"]),
            helper.make_node("Not", ["last"], ["go"]),
            helper.make_node("Identity", ["next"], ["scan"]),
        ],
        [info("i", I64, []), info("on", B, []), info("sum", F, [3])],
        [info("go", B, []), info("next", F, [3]), info("scan", F, [3])],
    )
    node = helper.make_node(
        "Loop", ["" if trips is None else "n", "", "s"], ["y", "all"], name="sums", body=inner
    )
    constants = {"one": np.array(1, np.int64), "limit": np.array(limit, np.int64)}
    if trips is not None:
        constants["n"] = np.array(trips, np.int64)
    return model([node], [info("x", F, [3]), info("s", F, [3])], ["y", "all"], constants)


@pytest.mark.parametrize(("trips", "limit"), [(4, 99), (None, 3), (9, 2)])
def test_loop(trips: int | None, limit: int) -> None:
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(3).astype(np.float32) for name in ("x", "s")}
    runs = min(limit, 99 if trips is None else trips)
    sums = np.cumsum([given["s"] + given["x"], *[given["x"]] * (runs - 1)], 0, np.float32)
    expect_model(loop(trips, limit), given, [sums[-1], sums])
    names = aicf.compile(loop(trips, limit), target="reference").ir("lower-onnx")
    assert f'aicf.id = "step.{runs - 1}"' in names and f'aicf.id = "step.{runs}"' not in names


def test_loops_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicf.passes.onnx.ops.control_flow.MAX_ITERATIONS", 64)
    with pytest.raises(aicf.UnsupportedOp, match="Loop 'sums': more than 64 iterations are not unrolled"):
        aicf.compile(loop(None, -1), target="reference")


def test_loop_of_a_trip_count_at_run_time() -> None:
    flow = loop(4, 99)
    flow.graph.initializer.remove(next(t for t in flow.graph.initializer if t.name == "n"))
    flow.graph.input.append(info("n", I64, []))
    with pytest.raises(aicf.UnsupportedOp, match=r"Loop 'sums': the trip count .*input 'n'"):
        aicf.compile(flow, target="reference")
    exe = aicf.compile(flow, target="reference", values={"n": 2})
    found = exe({"x": np.ones(3, np.float32), "s": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(found[0], [2, 2, 2])


@pytest.mark.parametrize("backward", [0, 1])
def test_scan(backward: int) -> None:
    inner = body(
        [helper.make_node("Add", ["sum", "part"], ["next"]), helper.make_node("Relu", ["next"], ["scan"])],
        [info("sum", F, [2]), info("part", F, [2])],
        [info("next", F, [2]), info("scan", F, [2])],
    )
    node = helper.make_node(
        "Scan",
        ["s", "x"],
        ["y", "all"],
        body=inner,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
        scan_input_directions=[backward],
        scan_output_directions=[backward],
    )
    flow = model([node], [info("s", F, [2]), info("x", F, [2, 5])], ["y", "all"])
    rng = np.random.default_rng(1)
    s, x = rng.standard_normal(2).astype(np.float32), rng.standard_normal((2, 5)).astype(np.float32)
    order = slice(None, None, -1 if backward else 1)
    sums = s[:, None] + np.cumsum(x[:, order], 1)
    expect_model(flow, {"s": s, "x": x}, [sums[:, -1], np.maximum(sums, 0)[:, order]])


@pytest.mark.parametrize(("opset", "sizes"), [(8, (100, 50)), (8, (5000, 1)), (16, (5000,))])
def test_scans_that_are_too_long(opset: int, sizes: tuple[int, ...]) -> None:
    """Of all batches together, before the first step is written."""
    inner = body(
        [helper.make_node("Add", ["sum", "part"], ["next"])],
        [info("sum", F, [2]), info("part", F, [2])],
        [info("next", F, [2])],
    )
    names = ["", "s", "x"] if opset == 8 else ["s", "x"]
    node = helper.make_node("Scan", names, ["y"], name="scan", body=inner, num_scan_inputs=1)
    flow = model([node], [info("s", F, [*sizes[:-1], 2]), info("x", F, [*sizes, 2])], ["y"])
    flow.opset_import[0].version = opset
    with pytest.raises(aicf.UnsupportedOp, match="Scan 'scan': more than 4096 iterations are not unrolled"):
        aicf.compile(flow, target="reference")
