"""cuDNN without a tuning table: what a policy asks it for runs by its heuristic, in one graph with our own kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.runtime.device_program import DeviceProgram
from aicf.errors import BackendUnavailable
from aicf.runtime.tensors import numpy_dtype
from tests.gpu.artifacts import changed, obtained
from tests.gpu.harness import program

pytestmark = pytest.mark.gpu

CONV, ATTENTION = "cuda.conv_cudnn", "cuda.attention_cudnn"
POLICY = aicf.KernelPolicy(conv="cudnn", attention="cudnn", layouts={"*": "channels_last"})


def network(dtype: str) -> tuple[aicf.Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two convolutions with bias and ReLU, a pooling of our own between them, and attention over the pixels."""
    random = np.random.default_rng(5)
    graph = aicf.Graph("network")
    x = graph.input("x", (2, 16, 32, 32), dtype)
    shapes = {"w1": (64, 16, 3, 3), "b1": (64, 1, 1), "w2": (64, 64, 3, 3), "b2": (64, 1, 1)}
    given = {name: graph.param(name, shape, dtype) for name, shape in shapes.items()}
    y = graph.relu(graph.add(graph.conv(x, given["w1"], low=(1, 1), high=(1, 1), name="conv1"), given["b1"]))
    y = graph.max_pool(y, (2, 2), strides=(2, 2))
    y = graph.relu(graph.add(graph.conv(y, given["w2"], low=(1, 1), high=(1, 1), name="conv2"), given["b2"]))
    pixels = graph.transpose(graph.reshape(y, (2, 1, 64, 256)), (0, 1, 3, 2))
    graph.output(graph.attention(pixels, pixels, pixels, causal=True, name="mixed"), "y")
    kind = numpy_dtype(dtype)
    weights = {
        name: (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(kind)
        for name, shape in shapes.items()
    }
    return graph, weights, {"x": random.normal(size=(2, 16, 32, 32)).astype(kind)}


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 2e-2), ("bf16", 1e-1)])
def test_cudnn_runs_by_its_heuristic(dtype: str, tolerance: float, tmp_path: Path) -> None:
    """In a program that is complete: compiled again it is the same, and its file gives the same bits."""
    graph, weights, inputs = network(dtype)
    model, again = (aicf.compile(graph, weights, "cuda", policy=POLICY) for _ in range(2))
    chosen = {each.subjects[0]: each for each in model.decisions if each.made_by == "select-kernels"}
    found = {name: chosen[name].choice for name in ("conv1", "conv2", "mixed")}
    assert found == {"conv1": CONV, "conv2": CONV, "mixed": ATTENTION}, chosen
    assert model.ir("emit") == again.ir("emit")
    result = np.asarray(model(**inputs))
    wanted = np.asarray(aicf.compile(graph, weights, "reference")(**inputs))
    np.testing.assert_allclose(
        result.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
    )
    model.save(tmp_path / "network.aicf")
    np.testing.assert_array_equal(np.asarray(aicf.load(tmp_path / "network.aicf")(**inputs)), result)


@pytest.mark.parametrize("bias", [True, False])
def test_a_nan_passes_through_an_epilogue(bias: bool) -> None:
    """cuDNN's ReLU keeps it, as ours does: in its fused operation, and where it compiles a kernel at run time."""
    graph = aicf.Graph("epilogue")
    x, w = graph.input("x", (1, 32, 14, 14), "f16"), graph.param("w", (64, 32, 3, 3), "f16")
    y = graph.conv(x, w, low=(1, 1), high=(1, 1))
    y = graph.add(y, graph.param("b", (64, 1, 1), "f16")) if bias else y
    graph.output(graph.relu(y), "y")
    random = np.random.default_rng(6)
    weights = {"w": (random.normal(size=(64, 32, 3, 3)) / 17).astype(np.float16)}
    weights |= {"b": random.normal(size=(64, 1, 1)).astype(np.float16)} if bias else {}
    inputs = {"x": random.normal(size=(1, 32, 14, 14)).astype(np.float16)}
    inputs["x"][0, 0, 5, 5] = np.nan
    assert CONV in {
        launch.kernel
        for plan in aicf.compile(graph, weights, "cuda", policy=POLICY).plan.programs
        for launch in plan.launches
    }
    results = [
        np.isnan(np.asarray(aicf.compile(graph, weights, target, policy=policy)(**inputs)))
        for target, policy in (("cuda", POLICY), ("reference", None))
    ]
    assert results[1].any()
    np.testing.assert_array_equal(*results)


def test_another_version_is_refused() -> None:
    """A plan means something to one version alone."""
    model = obtained("cudnn-conv-plain")

    def older(device_program: DeviceProgram) -> DeviceProgram:
        libraries = tuple(replace(node, version="9.1.0") for node in device_program.libraries)
        return replace(device_program, libraries=libraries)

    with pytest.raises(BackendUnavailable, match=r"compiled for cudnn 9\.1\.0, here is "):
        changed(model, older)(program("cudnn-conv-plain").inputs)


def test_a_plan_that_cudnn_does_not_know_is_refused() -> None:
    """In one line, before anything is captured."""
    model = obtained("cudnn-conv-plain")

    def other(device_program: DeviceProgram) -> DeviceProgram:
        libraries = tuple(
            replace(node, call={**node.call, "algorithm": "eng9999"}) for node in device_program.libraries
        )
        return replace(device_program, libraries=libraries)

    with pytest.raises(BackendUnavailable, match="cudnn: the plan of instruction '.*' failed: ") as error:
        changed(model, other)(program("cudnn-conv-plain").inputs)
    assert "\n" not in error.value.message
