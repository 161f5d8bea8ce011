"""An ONNX model, served: any batch, from eight threads, without a copy, and out of the cache the next time.

    python inference_basic.py [FOLDER]      by default examples/build, which keeps the model and the cache

The model is a classifier with random weights; NumPy in float64 says what its answers must be.
"""

from __future__ import annotations

import hashlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import aicf

FOLDER = Path(__file__).parent / "build"
THREADS, CALLS = 8, 50
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w1": RNG.normal(0, 0.1, (256, 512)).astype(np.float32),
    "b1": RNG.normal(0, 1, 512).astype(np.float32),
    "w2": RNG.normal(0, 0.1, (512, 10)).astype(np.float32),
}


def main(folder: Path) -> None:
    """Serves the model in every way that a session has."""
    model = write_model(folder / "classifier.onnx")
    started = time.perf_counter()
    with aicf.InferenceSession(model, dims={"batch": [1, 32]}, cache_dir=folder / "cache") as session:
        print(f"ready in {time.perf_counter() - started:.2f} s on {session.target}")
        print(*(f"{spec.name}: {spec}" for spec in (*session.input_info, *session.output_info)), sep=", ")
        call(session)
        serve(session)
        bind(session)
        print(f"slowest ops: {[*session.profile([batch(32)]).by_source().items()][:2]}")
        print(session.memory)


def write_model(path: Path) -> Path:
    """softmax(relu(x w1 + b1) w2), for any batch."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["r"], "relu1"),
        helper.make_node("MatMul", ["r", "w2"], ["logits"], "fc2"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "prob", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 256])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def batch(count: int) -> np.ndarray:
    """Random inputs."""
    return np.random.default_rng(count).normal(0, 1, (count, 256)).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    """The probabilities, in float64."""
    w1, b1, w2 = (array.astype(np.float64) for array in WEIGHTS.values())
    logits = np.maximum(x @ w1 + b1, 0) @ w2
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def call(session: aicf.InferenceSession) -> None:
    """A batch that was given ahead, and one that gets its program now."""
    for count in (32, 5):
        x = batch(count)
        started = time.perf_counter()
        found = session.run({"x": x})["probabilities"]
        elapsed, error = time.perf_counter() - started, np.abs(found - expected(x)).max()
        assert error < 1e-5
        print(f"{count} rows in {elapsed * 1e3:.2f} ms, right to {error:.1e}")


def serve(session: aicf.InferenceSession) -> None:
    """Eight threads, one result hash."""
    x = batch(32)

    def work(_: int) -> set[str]:
        runs = (session.run([x])["probabilities"] for _ in range(CALLS))
        return {hashlib.sha256(result.tobytes()).hexdigest() for result in runs}

    with ThreadPoolExecutor(THREADS) as pool:
        hashes = set.union(*pool.map(work, range(THREADS)))
    print(f"{THREADS} threads, {THREADS * CALLS} calls, {len(hashes)} result hash: {', '.join(hashes)[:16]}")
    assert len(hashes) == 1


def bind(session: aicf.InferenceSession) -> None:
    """Inputs and outputs where they are: new numbers in the same memory are what the next run reads."""
    x, y = batch(1), np.empty((1, 10), np.float32)
    binding = session.bind(x=x, probabilities=y)
    started = time.perf_counter()
    binding.run(1000)
    print(f"bound: {(time.perf_counter() - started) * 1e3:.2f} us a run")
    x *= -1
    binding.run()
    np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
