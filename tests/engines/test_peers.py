"""ONNX Runtime and OpenVINO as engines: right answers in the caller's memory, sizes, plans on disk, and wrong devices.

QNN runs on its simulator where package `onnxruntime-qnn` is installed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from aicf import InferenceSession
from aicf.engines.registry import get_engine
from aicf.errors import BackendUnavailable, EngineError, PolicyError, UnsupportedOp
from tests.engines.test_engines import answer, assert_right
from tests.inference.models import rows
from tests.inference.test_onnx_session import FLOAT, INT64, branching, mlp, model, reshaped

pytestmark = pytest.mark.peers

ENGINES = ["onnxruntime", "openvino"]


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_here(engine: str) -> None:
    found = get_engine(engine).availability()
    assert found.is_available and found.version[0].isdigit()
    assert "cpu" in [device.lower() for device in found.devices]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dims", [None, {"batch": [1, 9]}], ids=["any", "ahead"])
def test_answers_are_right_wherever_they_go(engine: str, dims: Any) -> None:
    """Sizes with a plan of their own, and one without."""
    with InferenceSession(mlp(), engine=engine, dims=dims) as session:
        for count in (1, 9, 4):
            x = rows(count, 24, seed=count)
            assert_right(session.run([x])["y"], x)
            y = np.full((count, 600), np.nan, np.float32)
            binding = session.bind(x=x, y=y)
            binding.run()
            assert_right(y, x)
            x *= -1
            binding.run(2)
            assert_right(y, x)
            assert binding["y"] is y
            own = session.bind(x=x)
            own.run()
            assert_right(own["y"], x)
        made = [event.program for event in session.report.of("compiled")]
        assert made == (["batch=1", "batch=9", "any sizes"] if dims else ["any sizes"])


@pytest.mark.parametrize("engine", ENGINES)
def test_values_shapes_and_control_flow(engine: str) -> None:
    """OpenVINO needs to know how many numbers a shape has."""
    with InferenceSession(reshaped(), engine=engine, dims={"n": 6, "rank": 2}) as session:
        for shape in ([2, 3], [6, 1]):
            feeds = {"x": rows(6), "shape": np.array(shape)}
            np.testing.assert_array_equal(session.run(feeds)["y"], 2 * feeds["x"].reshape(shape))
    with InferenceSession(branching(), engine=engine) as session:
        x = rows(5)
        for rate, wanted in ((16000, x + 1), (8000, x * x)):
            np.testing.assert_allclose(session.run({"x": x, "rate": np.array(rate)})["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_types_scalars_and_several_outputs(engine: str) -> None:
    nodes = [
        helper.make_node("Add", ["i", "i"], ["twice"]),
        helper.make_node("Greater", ["x", "s"], ["above"]),
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
    ]
    proto = model(
        nodes, [("i", INT64, [3]), ("x", FLOAT, [2, 2]), ("s", FLOAT, [])], ["twice", "above", "half"]
    )
    for output, kind in zip(proto.graph.output, (INT64, TensorProto.BOOL, TensorProto.FLOAT16), strict=True):
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, None))
    x, i, s = rows(2, 2), np.random.default_rng(0).integers(-9, 9, 3), np.array(0.1, np.float32)
    with InferenceSession(proto, engine=engine) as session:
        results = session.run({"x": x, "i": i, "s": s})
        assert list(results) == ["twice", "above", "half"]
        np.testing.assert_array_equal(results["twice"], 2 * i)
        np.testing.assert_array_equal(results["above"], x > s)
        np.testing.assert_array_equal(results["half"], x.astype(np.float16))
        assert [array.dtype for array in results.values()] == [np.int64, np.bool_, np.float16]


@pytest.mark.parametrize("engine", ENGINES)
def test_eight_threads(engine: str) -> None:
    with InferenceSession(mlp(), engine=engine, threads=2) as session, ThreadPoolExecutor(8) as pool:
        inputs = [rows(1 + seed % 3, 24, seed=seed) for seed in range(40)]
        for x, results in zip(inputs, pool.map(lambda x: session.run([x]), inputs), strict=True):
            assert_right(results["y"], x)
        assert session.placement().threads == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_profiles_name_the_nodes_of_the_model(engine: str) -> None:
    with InferenceSession(mlp(), engine=engine) as session:
        profile = session.profile([rows(64, 24)], repeats=5)
    assert "fc" in {row.name for row in profile.instructions}
    assert profile.replay_us > 0 and all(0 < row.best_us <= row.median_us for row in profile.instructions)
    assert abs(sum(profile.by_source().values()) - profile.total_us) < 1e-6


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_fresh(engine: str) -> None:
    x = rows(4, 24)
    with InferenceSession(mlp(), engine=engine) as session:
        first = session.run([x])["y"]
        kept = first.copy()
        session.run([-x])
        np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_engine_does_not_take_is_told_in_its_words(engine: str) -> None:
    proto = model([helper.make_node("Mystery", ["x"], ["y"])], [("x", FLOAT, [2])], ["y"])
    with pytest.raises(
        EngineError, match=f"engine '{engine}' failed while it made a plan for fixed sizes: .*Mystery"
    ):
        InferenceSession(proto, engine=engine)
    proto = model([helper.make_node("Abs", ["x"], ["y"])], [("x", TensorProto.BFLOAT16, [2])], ["y"])
    with pytest.raises(UnsupportedOp, match=f"'x' is bf16, which the Python interface of engine '{engine}'"):
        InferenceSession(proto, engine=engine)


DEVICES = [
    ("onnxruntime", "npu", PolicyError, "finds no 'npu' here; legal: cpu, CPUExecutionProvider"),
    (
        "onnxruntime",
        "cuda",
        BackendUnavailable,
        "has no CUDAExecutionProvider; install onnxruntime-gpu in its place",
    ),
    ("onnxruntime", "cuda:1", BackendUnavailable, "device 'cuda:1': package onnxruntime "),
    ("openvino", "npu", PolicyError, "device: engine 'openvino' finds no 'npu' here; legal: cpu, CPU"),
    ("openvino", "AUTO", PolicyError, "device: engine 'openvino' finds no 'AUTO' here"),
]


@pytest.mark.parametrize(("engine", "device", "kind", "message"), DEVICES)
def test_devices_that_are_not_here(engine: str, device: str, kind: type[Exception], message: str) -> None:
    if device.lower() in [
        name.lower().replace(".", ":") for name in get_engine(engine).availability().devices
    ]:
        pytest.skip(f"{device} is here")
    with pytest.raises(kind, match=message):
        InferenceSession(mlp(), engine=engine, device=device)


def test_openvino_keeps_compiled_blobs(tmp_path: Path) -> None:
    x = rows(2, 24)
    for what in ("compiled", "loaded"):
        with InferenceSession(mlp(), engine="openvino", cache_dir=tmp_path, dims="batch=2") as session:
            assert [event.program for event in session.report.of(what)] == ["batch=2"]
            assert_right(session.run([x])["y"], x)
            assert session.profile([x], repeats=2).instructions
            assert list(session.engine.plans) == ["batch=2"]
    (path,) = tmp_path.glob("*.plan")
    plan = path.read_bytes()
    path.write_bytes(plan[: len(plan) // 2])
    with InferenceSession(mlp(), engine="openvino", cache_dir=tmp_path, dims="batch=2") as session:
        assert session.report.of("rebuilt") and session.report.of("compiled")
        assert_right(session.run([x])["y"], x)


def test_openvino_computes_in_the_type_that_the_policy_names() -> None:
    """What is rounded to bf16 is further from the answer than what is computed in f32."""
    import openvino

    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("the processor has no bf16")
    x, errors = rows(64, 24), []
    for to in ("unchanged", "bf16"):
        with InferenceSession(mlp(), engine="openvino", policy={"precision": {"to": to}}) as session:
            errors.append(np.abs(session.run([x])["y"] - answer(x)).max())
    assert errors[0] < 1e-5 < errors[1] < 1e-1
    with pytest.raises(
        PolicyError, match="to: engine 'openvino' cannot compute in 'int8' on this device; legal: unchanged"
    ):
        InferenceSession(mlp(), engine="openvino", policy={"precision": {"to": "int8"}})


def test_a_model_whose_weights_are_in_a_file(tmp_path: Path) -> None:
    path, x = tmp_path / "model.onnx", rows(3, 24)
    onnx.save(mlp(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    for engine in ENGINES:
        with InferenceSession(path, engine=engine) as session:
            assert_right(session.run([x])["y"], x)


def test_auto_takes_another_engine_for_an_op_that_aicf_does_not_have() -> None:
    proto = model(
        [helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft")], [("x", FLOAT, [3, 3])], ["y"]
    )
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = rows(3, 3)
    with InferenceSession(proto, engine="auto", device="cpu") as session:
        assert session.engine_name == "onnxruntime"
        (event,) = session.report.of("chosen")
        assert "(aicf: op 'Inverse' of domain 'com.microsoft'" in event.detail
        np.testing.assert_allclose(session.run([x])["y"], np.linalg.inv(x.astype(np.float64)), rtol=1e-4)


def test_qnn_runs_on_its_simulator(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_qnn")
    x = rows(4, 24)
    for what in ("compiled", "loaded"):
        with InferenceSession(mlp(), engine="qnn", cache_dir=tmp_path, dims="batch=4") as session:
            assert [event.program for event in session.report.of(what)] == ["batch=4"]
            np.testing.assert_allclose(session.run([x])["y"], answer(x), rtol=2e-2, atol=2e-3)
            assert not session.engine.is_verified and "(unverified)" in str(session.engine)
