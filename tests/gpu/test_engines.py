"""TensorRT, and the CUDA provider of ONNX Runtime, as engines; each where its package is installed beside a GPU.

pip install tensorrt-cu13 cuda-bindings onnx        # or onnxruntime-gpu
pytest -m gpu tests/gpu/test_engines.py
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from aicf import InferenceSession
from aicf.engines.registry import get_engine
from aicf.errors import EngineError, InputMismatch, PolicyError
from aicf.tools.aicf_cli import main
from tests.engines.test_engines import answer, assert_right
from tests.inference.models import rows
from tests.inference.test_onnx_session import FLOAT, mlp, model

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ON_CUDA = {"tensorrt": "cuda", "onnxruntime": "CUDAExecutionProvider"}


@pytest.fixture(params=ON_CUDA)
def engine(request: pytest.FixtureRequest) -> str:
    found = get_engine(request.param).availability()
    if not found.is_available:
        pytest.skip(str(found))
    if not any(device.startswith(ON_CUDA[request.param]) for device in found.devices):
        pytest.skip(f"{request.param} has no GPU: {', '.join(found.devices)}")
    return request.param


@pytest.fixture
def tensorrt() -> str:
    if not (found := get_engine("tensorrt").availability()).is_available:
        pytest.skip(str(found))
    return "tensorrt"


def opened(engine: str, **options: Any) -> InferenceSession:
    return InferenceSession(mlp(), engine=engine, device="cuda", **options)


def test_answers_are_right_wherever_they_go(engine: str) -> None:
    """TF32 is off for TensorRT, and ONNX Runtime decides itself."""
    limit = 1e-5 if engine == "tensorrt" else 2e-3
    with opened(engine, dims={"batch": [1, 9]}) as session:
        for count in (1, 9, 4):
            x, y = rows(count, 24, seed=count), np.full((count, 600), np.nan, np.float32)
            assert np.abs(session.run([x])["y"] - answer(x)).max() < limit
            binding = session.bind(x=x, y=y)
            x *= -1
            binding.run(3)
            assert np.abs(y - answer(x)).max() < limit
        print(session.engine)


def test_eight_threads(engine: str) -> None:
    with opened(engine, dims="batch=5") as session, ThreadPoolExecutor(8) as pool:
        inputs = [rows(5, 24, seed=seed) for seed in range(40)]
        for x, results in zip(inputs, pool.map(lambda x: session.run([x]), inputs), strict=True):
            np.testing.assert_allclose(results["y"], answer(x), atol=2e-3)


def test_plans_are_kept_for_one_gpu(tensorrt: str, tmp_path: Path) -> None:
    x = rows(2, 24)
    for what in ("compiled", "loaded"):
        with opened(tensorrt, cache_dir=tmp_path, dims="batch=2") as session:
            assert [event.program for event in session.report.of(what)] == ["batch=2"]
            assert_right(session.run([x])["y"], x)
            assert list(session.engine.plans) == ["batch=2"] and "(unverified)" in str(session.engine)
    (about,) = tmp_path.glob("*.json")
    assert "sm_" in json.loads(about.read_text())["target"]
    (path,) = tmp_path.glob("*.plan")
    path.write_bytes(path.read_bytes()[:-100])
    with opened(tensorrt, cache_dir=tmp_path, dims="batch=2") as session:
        assert session.report.of("rebuilt") and session.report.of("compiled")
        assert_right(session.run([x])["y"], x)


def test_tf32_only_where_the_policy_says_so(tensorrt: str) -> None:
    x, errors = rows(64, 24), list[float]()
    for tf32 in (False, True):
        with opened(tensorrt, dims="batch=64", kernel_policy={"tf32": tf32}) as session:
            errors.append(float(np.abs(session.run([x])["y"] - answer(x)).max()))
            assert session.engine.fingerprint.options == {"tf32": "on" if tf32 else "off"}
    assert errors[0] < 1e-5 and errors[1] < 1e-2


def test_what_tensorrt_does_not_take_is_told_in_its_words(tensorrt: str) -> None:
    proto = model([onnx.helper.make_node("Mystery", ["x"], ["y"])], [("x", FLOAT, [2])], ["y"])
    with pytest.raises(EngineError, match="engine 'tensorrt' does not read the model: .*Mystery"):
        InferenceSession(proto, engine=tensorrt)
    with pytest.raises(
        PolicyError, match="device: engine 'tensorrt' finds no 'cuda:99' here; legal: cuda, cuda:0"
    ):
        InferenceSession(mlp(), engine=tensorrt, device="cuda:99")
    with (
        opened(tensorrt, dims="batch=2", exec_policy={"new_shapes": "refuse"}) as session,
        pytest.raises(InputMismatch, match="no plan for batch=3; made for batch=2"),
    ):
        session.run([rows(3, 24)])


def test_a_closed_session_gives_the_gpu_back(tensorrt: str) -> None:
    session = opened(tensorrt, dims="batch=2")
    session.run([rows(2, 24)])
    session.close()
    session.close()


def test_it_is_compared_with_aicf(tensorrt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)
    asked = ["--engines", f"aicf,{tensorrt}", "--device", "cuda", "--dims", "batch=8", "--json"]
    assert main(["compare", str(path), *asked]) == 0
    ours, theirs = json.loads(capsys.readouterr().out)["results"]
    print(ours["median_us"], theirs["median_us"])
    assert ours["deviation"]["relative"] < 1e-3 and theirs["deviation"]["relative"] < 1e-3
