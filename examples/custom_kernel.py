"""An op and three kernels of your own: a filter before a softmax, a norm in CUDA C++, and a cap inside an epilogue.

    python custom_kernel.py

Runs on the processor, and compiles the same program for an H100, which needs no GPU. A package does the same in a
module that its entry point in the group `aicf.kernels` names.
"""

from __future__ import annotations

import math

import numpy as np

import aicf
from aicf.kernels import CpuFunction, CudaSource, LaunchShape, Problem
from aicf.testing import check_kernel

ROWS, HIDDEN, TOKENS = 4, 64, 50


# An op of its own: what it computes, in NumPy, and a kernel for processors.


def top_p(x, *, p: float):
    """The most probable elements of each row, of mass `p` together; -inf for the others (Holtzman et al., 2020)."""
    order = np.argsort(-x, axis=-1, kind="stable")
    ranked = np.take_along_axis(x, order, -1)
    mass = np.exp(ranked - ranked[..., :1])
    mass /= mass.sum(-1, keepdims=True)
    kept = np.zeros(x.shape, bool)
    np.put_along_axis(kept, order, np.cumsum(mass, -1) - mass < p, -1)
    return np.where(kept, x, -np.inf)


def top_p_rows(x, y, rows, columns, p):
    """Takes the largest element that is left, again and again; Numba compiles it, and it calls nothing of Python."""
    for row in range(rows):
        start = row * columns
        top = x[start]
        for column in range(columns):
            y[start + column] = -math.inf
            top = max(top, x[start + column])
        total, mass = 0.0, 0.0
        for column in range(columns):
            total += math.exp(x[start + column] - top)
        while mass < p * total:
            best = -1
            for column in range(columns):
                is_left = y[start + column] == -math.inf
                if is_left and (best < 0 or x[start + column] > x[start + best]):
                    best = column
            if best < 0:
                break
            y[start + best] = x[start + best]
            mass += math.exp(x[start + best] - top)


aicf.custom_op("example.top_p", top_p)
TOP_P = aicf.kernel(
    "example.top_p_rows",
    runs="example.top_p",
    code=CpuFunction(top_p_rows),
    arguments=lambda problem: (*problem.operands[0].shape, problem.attributes["p"]),
    legal=lambda problem: None if len(problem.operands[0].shape) == 2 else "it takes matrices",
    dtypes=("f32", "f64"),
)

# The same filter for GPUs, in CUDA C++: a block a row, whose first thread does what the loops above do.

TOP_P_SOURCE = r"""
__device__ const float left_out = -1.0f / 0.0f;

extern "C" __global__ void top_p(const float* x, float* y, long long columns, double p) {
  const float* row = x + blockIdx.x * columns;
  float* kept = y + blockIdx.x * columns;
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) kept[c] = left_out;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float top = row[0];
  for (long long c = 1; c < columns; ++c) top = fmaxf(top, row[c]);
  double total = 0, mass = 0;
  for (long long c = 0; c < columns; ++c) total += exp(double(row[c] - top));
  while (mass < p * total) {
    long long best = -1;
    for (long long c = 0; c < columns; ++c)
      if (kept[c] == left_out && (best < 0 || row[c] > row[best])) best = c;
    if (best < 0) break;
    kept[best] = row[best];
    mass += exp(double(row[best] - top));
  }
}
"""

aicf.kernel(
    "example.top_p_block",
    runs="example.top_p",
    code=CudaSource(TOP_P_SOURCE, "top_p"),
    arguments=lambda problem: (problem.operands[0].shape[1], problem.attributes["p"]),
    launch=lambda problem: LaunchShape((problem.operands[0].shape[0], 1, 1), (128, 1, 1)),
    dtypes=("f32",),
)

# A kernel for an op that AICF has: taken where it is predicted to be faster than ours, or where the policy says so.


def rms_norm_rows(x, scale, y, rows, columns, epsilon):
    """Row by row."""
    for row in range(rows):
        total = 0.0
        for column in range(columns):
            total += x[row * columns + column] ** 2
        factor = 1.0 / math.sqrt(total / columns + epsilon)
        for column in range(columns):
            y[row * columns + column] = x[row * columns + column] * factor * scale[column]


def _is_matrix(problem: Problem) -> str | None:
    return None if len(problem.operands[0].shape) == 2 else "it takes matrices"


RMS_NORM = aicf.kernel(
    "example.rms_norm_rows",
    runs="logical.rms_norm",
    code=CpuFunction(rms_norm_rows),
    arguments=lambda problem: (*problem.operands[0].shape, problem.attributes["epsilon"]),
    cost_us=lambda problem: 1e-3 * problem.operands[0].size,
    legal=_is_matrix,
)

# A pointwise op: its formula is fused like any other arithmetic.

aicf.custom_op(
    "example.softcap",
    lambda x, *, cap=30.0: cap * np.tanh(x / cap),
    formula=lambda graph, x, *, cap: graph.tanh(x / cap) * cap,
    pointwise=True,
)


def model() -> aicf.Graph:
    """The end of a language model: norm, head, cap, filter, softmax."""
    graph = aicf.Graph("head")
    x, scale = graph.input("x", (ROWS, HIDDEN)), graph.param("scale", (HIDDEN,))
    logits = graph.linear(
        graph.rms_norm(x, scale, name="norm"), graph.param("w", (TOKENS, HIDDEN)), name="head"
    )
    capped = graph.op("example.softcap", logits, cap=5, name="cap")
    graph.output(graph.softmax(graph.op("example.top_p", capped, p=0.9, name="filter"), name="prob"), "y")
    return graph


def main() -> None:
    """Checks the kernels, runs the model with and without the norm's kernel, and compiles it for an H100."""
    print(check_kernel(TOP_P, (ROWS, TOKENS), attributes={"p": 0.9}, bounds=True))
    print(check_kernel(RMS_NORM, (ROWS, HIDDEN), (HIDDEN,), bounds=True))
    rng = np.random.default_rng(0)
    weights = {
        "scale": np.ones(HIDDEN, np.float32),
        "w": rng.standard_normal((TOKENS, HIDDEN), np.float32),
    }
    x = rng.standard_normal((ROWS, HIDDEN), np.float32)
    expected = aicf.compile(model(), weights, "reference")(x)
    for policy in (None, {"kernels": {"norm": "example.rms_norm_rows"}}):
        exe = aicf.compile(model(), weights, "cpu", policy=policy)
        print(*(launch.kernel for launch in exe.plan.programs[-1].launches), sep=", ")
        print(f"largest difference from the meaning: {np.abs(exe(x) - expected).max():.1e}")
    print(exe.explain("filter"))
    gpu = aicf.compile(model(), weights, "cuda:sm_90a")
    print(*(launch.kernel for launch in gpu.plan.programs[-1].launches), sep=", ")


if __name__ == "__main__":
    main()
