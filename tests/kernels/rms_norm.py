"""Kernels of packages for `logical.rms_norm` in one piece: Numba for processors and GPUs, and CUDA C++."""

from __future__ import annotations

import math

from numba import cuda

import aicf
from aicf.kernels import CpuFunction, CudaFunction, CudaSource, LaunchShape, Problem, UserKernel

THREADS = 256

SOURCE = r"""
extern "C" __global__ void rms_norm(const float* x, const float* scale, float* y, long long columns, double epsilon) {
  __shared__ float sums[256];
  const float* row = x + blockIdx.x * columns;
  float sum = 0.0f;
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c] * row[c];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  float factor = rsqrtf(sums[0] / columns + float(epsilon));
  float* result = y + blockIdx.x * columns;
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) result[c] = row[c] * factor * scale[c];
}
"""


def rms_norm_rows(x, scale, y, rows, columns, epsilon):
    for row in range(rows):
        total = 0.0
        for column in range(columns):
            total += x[row * columns + column] ** 2
        factor = 1.0 / math.sqrt(total / columns + epsilon)
        for column in range(columns):
            y[row * columns + column] = x[row * columns + column] * factor * scale[column]


def rms_norm_block(x, scale, y, epsilon):
    """A block a row; each thread adds up the whole row by itself, for simplicity."""
    row = cuda.blockIdx.x
    total = 0.0
    for column in range(x.shape[1]):
        total += x[row, column] * x[row, column]
    factor = 1.0 / math.sqrt(total / x.shape[1] + epsilon)
    for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        y[row, column] = x[row, column] * factor * scale[column]


def _matrices(problem: Problem) -> str | None:
    return None if len(problem.operands[0].shape) == 2 else "it takes matrices"


def _launch(problem: Problem) -> LaunchShape:
    return LaunchShape((problem.operands[0].shape[0], 1, 1), (THREADS, 1, 1))


def define_cpu(cost_us: float = 1.0, **more) -> UserKernel:
    return aicf.kernel(
        "acme.rms_norm",
        runs="logical.rms_norm",
        code=CpuFunction(rms_norm_rows),
        arguments=lambda problem: (*problem.operands[0].shape, problem.attributes["epsilon"]),
        cost_us=lambda problem: cost_us,
        legal=_matrices,
        **more,
    )


def define_source(cost_us: float = 1.0, source: str = SOURCE, **more) -> UserKernel:
    return aicf.kernel(
        "acme.rms_norm_source",
        runs="logical.rms_norm",
        code=CudaSource(source, "rms_norm", more.pop("options", ())),
        arguments=lambda problem: (problem.operands[0].shape[1], problem.attributes["epsilon"]),
        launch=more.pop("launch", _launch),
        cost_us=lambda problem: cost_us,
        legal=_matrices,
        dtypes=("f32",),
        **more,
    )


def define_numba(cost_us: float = 1.0, **more) -> UserKernel:
    return aicf.kernel(
        "acme.rms_norm_numba",
        runs="logical.rms_norm",
        code=CudaFunction(more.pop("function", rms_norm_block)),
        arguments=lambda problem: (problem.attributes["epsilon"],),
        launch=more.pop("launch", _launch),
        cost_us=lambda problem: cost_us,
        legal=_matrices,
        **more,
    )
