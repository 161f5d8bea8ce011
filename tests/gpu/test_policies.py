"""Policies that ask the device: cublasLt without a tuning table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.runtime.tensors import numpy_dtype

pytestmark = pytest.mark.gpu

LIBRARY = "cuda.cublaslt"
TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


def network(dtype: str) -> tuple[aicf.Graph, dict[str, np.ndarray], np.ndarray]:
    """Two products, one with bias and ReLU, which the library adds itself."""
    random = np.random.default_rng(5)
    graph = aicf.Graph("network")
    x = graph.input("x", (128, 96), dtype)
    shapes = {"w1": (64, 96), "b1": (64,), "w2": (32, 64)}
    given = {name: graph.param(name, shape, dtype) for name, shape in shapes.items()}
    hidden = graph.relu(graph.linear(x, given["w1"], given["b1"], name="fc1"))
    graph.output(graph.linear(hidden, given["w2"], name="fc2"), "y")
    kind = numpy_dtype(dtype)
    weights = {name: random.normal(size=shape).astype(kind) / 8 for name, shape in shapes.items()}
    return graph, {k: v.astype(kind) for k, v in weights.items()}, random.normal(size=(128, 96)).astype(kind)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_cublaslt_runs_by_its_heuristic(dtype: str, tmp_path: Path) -> None:
    """Both products, in a program that is complete: compiled again it is the same, and its file runs as it does."""
    graph, weights, x = network(dtype)
    policy = aicf.KernelPolicy(matmul="cublasLt")
    model, again = (aicf.compile(graph, weights, "cuda", policy=policy) for _ in range(2))
    chosen = {each.subjects[0]: each for each in model.decisions if each.made_by == "select-kernels"}
    assert [(each.choice, each.rejected) for each in chosen.values() if each.choice != LIBRARY] == []
    assert model.ir("emit") == again.ir("emit")
    result = np.asarray(model(x))
    wanted = np.asarray(aicf.compile(graph, weights, "reference")(x))
    np.testing.assert_allclose(
        result.astype(np.float64), wanted.astype(np.float64), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )
    model.save(tmp_path / "network.aicf")
    np.testing.assert_array_equal(np.asarray(aicf.load(tmp_path / "network.aicf")(x)), result)


def test_a_training_step_runs_its_products_by_the_library() -> None:
    """The losses are those of our own kernels, up to rounding."""
    random = np.random.default_rng(5)
    x, y = random.normal(size=(128, 96)).astype(np.float32), random.integers(0, 32, 128)
    losses: list[np.ndarray] = []
    for policy in (aicf.KernelPolicy(matmul="cublasLt"), aicf.KernelPolicy(matmul="simt")):
        step = aicf.train_step(
            network("f32")[0], "cross_entropy", aicf.optimizers.SGD(0.1), target="cuda", policy=policy, seed=0
        )
        step(x, y)
        step.replay(19)
        losses.append(np.asarray(step.losses()))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
