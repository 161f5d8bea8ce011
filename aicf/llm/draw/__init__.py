"""The op that draws a token, `aicf.draw`: its meaning, and its kernels for processors and for GPUs.

Importing this package defines them, so only what builds programs imports it.
"""

from __future__ import annotations

from aicf.kernels import CpuFunction, CudaSource, LaunchShape, Problem, TensorSpec, custom_op, kernel
from aicf.llm.draw.meaning import draw
from aicf.llm.draw.on_cpu import draw_on_cpu
from aicf.llm.draw.on_cuda import BLOCKS, SOURCE, THREADS

__all__ = ["CPU", "CUDA", "DRAW"]

DRAW = "aicf.draw"
_ORDER = "whole numbers, whose sums are exact in any order"
_SETTINGS = {"uniform": "f64", "top_k": "i64", "top_p": "f32", "min_p": "f32"}


def _result(weights: TensorSpec, *settings: TensorSpec) -> TensorSpec:
    """i64[rows]. Raises ValueError for operands of other types or shapes."""
    if weights.dtype != "i32" or len(weights.shape) not in (1, 2):
        raise ValueError(
            f"weights is {weights.dtype} of shape {weights.shape}; it is i32[count] or i32[rows, count]"
        )
    rows = (1,) if len(weights.shape) == 1 else weights.shape[:1]
    for (name, dtype), spec in zip(_SETTINGS.items(), settings, strict=True):
        if (spec.dtype, spec.shape) != (dtype, rows):
            raise ValueError(f"{name} is {spec.dtype} of shape {spec.shape}; it is {dtype} of shape {rows}")
    return TensorSpec(rows, "i64")


def _sizes(problem: Problem) -> tuple[int, int]:
    """Rows, and weights in one."""
    return problem.results[0].size, _count(problem)[0]


def _count(problem: Problem) -> tuple[int]:
    return (problem.operands[0].shape[-1],)


custom_op(DRAW, draw, result=_result)
CPU = kernel(
    "aicf.draw_on_cpu", runs=DRAW, code=CpuFunction(draw_on_cpu), arguments=_sizes, order=_ORDER, version=2
)
CUDA = kernel(
    "aicf.draw_on_cuda",
    runs=DRAW,
    code=CudaSource(SOURCE, "draw"),
    arguments=_count,
    launch=lambda problem: LaunchShape((BLOCKS * problem.results[0].size, 1, 1), (THREADS, 1, 1)),
    order=_ORDER,
    version=3,
)
