"""Kernels of packages on the GPU: those of the tests against the meaning, between guard zones, in the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numba import cuda

import aicf
from aicf.kernels import CudaFunction, CudaSource, LaunchShape, Problem, TensorSpec
from aicf.testing import KernelMistake, check_kernel, temporary_definitions
from tests.kernels import rms_norm

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_definitions() -> Iterator[None]:
    with temporary_definitions():
        yield


@pytest.mark.parametrize("define", [rms_norm.define_source, rms_norm.define_numba])
@pytest.mark.parametrize("shape", [(6, 640), (1, 1), (257, 33)])
def test_a_norm_in_one_piece(define, shape: tuple[int, int]) -> None:
    check_kernel(define(), shape, shape[-1:], attributes={"epsilon": 1e-3}, bounds=True, runs=8)


def doubled(x, y, count):
    """A grid of blocks over the elements; as many threads too many as the last block has."""
    index = cuda.grid(1)
    if index < count:
        y[index] = 2 * x[index]


def doubled_too_far(x, y, count):
    index = cuda.grid(1)
    if index < count + 1:
        y[index] = 2 * x[index]


def one_axis(problem: Problem) -> LaunchShape:
    return LaunchShape((-(-problem.operands[0].size // 128), 1, 1), (128, 1, 1))


SCALED = r"""
extern "C" __global__ void scaled(const float* x, float* y, unsigned char* room, long long count, double factor) {
  extern __shared__ float shared[];
  float* kept = reinterpret_cast<float*>(room);
  long long index = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  shared[threadIdx.x] = index < count ? x[index] : 0.0f;
  __syncthreads();
  if (index < count) { kept[index] = shared[threadIdx.x]; y[index] = kept[index] * float(factor); }
}
"""


def define(function, **more):
    aicf.custom_op("acme.double", lambda x: 2 * x)
    return aicf.kernel(
        "acme.doubled",
        runs="acme.double",
        code=CudaFunction(function),
        arguments=lambda problem: (problem.operands[0].size,),
        launch=one_axis,
        **more,
    )


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i32", "u8"])
def test_an_op_of_its_own(dtype: str) -> None:
    check_kernel(define(doubled), TensorSpec((1000,), dtype), bounds=True)


def test_in_place() -> None:
    check_kernel(define(doubled, in_place=[(0, 0)]), (1000,))


def test_a_write_past_the_end_is_found() -> None:
    with pytest.raises(KernelMistake, match=r"around its result \(4000 bytes\) it writes .* bytes outside"):
        check_kernel(define(doubled_too_far), (1000,), bounds=True)


def test_workspace_and_dynamic_shared_memory() -> None:
    aicf.custom_op("acme.scaled", lambda x, *, factor=2.0: factor * x)
    kernel = aicf.kernel(
        "acme.scaled_source",
        runs="acme.scaled",
        code=CudaSource(SCALED, "scaled"),
        arguments=lambda problem: (problem.operands[0].size, problem.attributes["factor"]),
        launch=lambda problem: LaunchShape(one_axis(problem).grid, (128, 1, 1), 4 * 128),
        workspace_bytes=lambda problem: problem.operands[0].nbytes,
    )
    check_kernel(kernel, (1000,), attributes={"factor": 0.75}, bounds=True)


def test_a_kernel_between_ours_in_one_graph(tmp_path) -> None:
    """Captured with its neighbours, saved, loaded and replayed: all replays have the same bits."""
    kernel = rms_norm.define_source()
    graph = aicf.Graph("layer")
    x, scale = graph.input("x", (32, 256)), graph.param("scale", (256,))
    w = graph.param("w", (128, 256))
    graph.output(graph.relu(graph.linear(graph.rms_norm(x, scale, name="norm"), w)), "y")
    rng = np.random.default_rng(0)
    weights = {
        "scale": rng.standard_normal(256, np.float32),
        "w": rng.standard_normal((128, 256), np.float32),
    }
    policy = {"kernels": {"norm": kernel.id}}
    exe = aicf.compile(graph, weights, "cuda", policy=policy)
    values = rng.standard_normal((32, 256), np.float32)
    expected = aicf.compile(graph, weights, "reference")(values)
    exe.save(tmp_path / "layer.aicf")
    results = [program(values) for program in (exe, aicf.load(tmp_path / "layer.aicf")) for _ in range(20)]
    assert len({result.tobytes() for result in results}) == 1
    np.testing.assert_allclose(results[0], expected, atol=2e-5 * np.abs(expected).max())
