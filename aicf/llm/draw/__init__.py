"""The op that draws a token, `aicf.draw`: its meaning, and its kernels for processors and for GPUs.

Importing this package defines them, so only what builds programs imports it.
"""

from __future__ import annotations

from aicf.kernels import CpuFunction, CudaSource, LaunchShape, Problem, TensorSpec, custom_op, kernel
from aicf.llm.draw.meaning import draw
from aicf.llm.draw.on_cpu import draw_on_cpu
from aicf.llm.draw.on_cuda import SOURCE, THREADS

__all__ = ["CPU", "CUDA", "DRAW"]

DRAW = "aicf.draw"
_OPERANDS = (
    ("weights", "i32"),
    ("uniform", "f64"),
    ("top_k", "i64"),
    ("top_p", "f32"),
    ("min_p", "f32"),
)


def _result(*operands: TensorSpec) -> TensorSpec:
    """i64[1]. Raises ValueError for operands of other types or shapes."""
    for (name, dtype), spec in zip(_OPERANDS, operands, strict=True):
        if spec.dtype != dtype or len(spec.shape) != 1 or (name != "weights" and spec.shape != (1,)):
            size = "count" if name == "weights" else "1"
            raise ValueError(f"{name} is {spec.dtype} of shape {spec.shape}; it is {dtype}[{size}]")
    return TensorSpec((1,), "i64")


def _count(problem: Problem) -> tuple[int]:
    return (problem.operands[0].size,)


custom_op(DRAW, draw, result=_result)
CPU = kernel("aicf.draw_on_cpu", runs=DRAW, code=CpuFunction(draw_on_cpu), arguments=_count)
CUDA = kernel(
    "aicf.draw_on_cuda",
    runs=DRAW,
    code=CudaSource(SOURCE, "draw"),
    arguments=_count,
    launch=LaunchShape((1, 1, 1), (THREADS, 1, 1)),
)
