"""What a case of the GPU tests is, and the names of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.frontends.builder import Graph
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.differentiate import DifferentiatePass
from tests.gpu import programs
from tests.gpu.programs import Program, random_arrays

Array = programs.Array
ROOT = Path(__file__).parents[3]
TARGET = "cuda:sm_90a"

GENERATED, COPY, CONCAT = "cuda.generated", "cuda.copy", "cuda.concat"
WGMMA_TF32, MMA_TF32 = "cuda.gemm_wgmma_tf32", "cuda.gemm_mma_tf32"
WGMMA_INT8, MMA_INT8 = "cuda.gemm_wgmma_int8", "cuda.gemm_mma_int8"
WGMMA, MMA, SIMT, GEMV = "cuda.gemm_wgmma", "cuda.gemm_mma", "cuda.gemm_simt", "cuda.gemv"
SKINNY = "cuda.gemm_skinny"
WGMMA_SUMS = "cuda.gemm_wgmma_sums"
GEMM_NORM = "cuda.gemm_norm"
ATTENTION, ATTENTION_SIMT, LIBRARY = "cuda.attention", "cuda.attention_simt", "cuda.cublaslt"
ATTENTION_WGMMA, ATTENTION_STEP = "cuda.attention_wgmma", "cuda.attention_step"
CACHED_STEP = "cuda.cached_attention_step"
CACHED, CACHED_WGMMA = "cuda.cached_attention", "cuda.cached_attention_wgmma"
CONV_WGMMA, CONV_SIMT = "cuda.conv_wgmma", "cuda.conv_simt"
CONV_WGMMA_MOMENTS = "cuda.conv_wgmma_moments"
CONV_MMA_INT8, CONV_WGMMA_INT8 = "cuda.conv_mma_int8", "cuda.conv_wgmma_int8"
CONV_MMA, CONV_MMA_TF32 = "cuda.conv_mma", "cuda.conv_mma_tf32"
CONV_DEPTHWISE = "cuda.conv_depthwise"
POOL, POOL_TAPS, MAX_POOL_GRAD = "cuda.pool", "cuda.pool_taps", "cuda.max_pool_grad"
SCATTER, SCATTER_SORTED = "cuda.scatter", "cuda.scatter_sorted"
LAST_UPDATE, TOPK, WRITE_ROW = "cuda.last_update", "cuda.topk", "cuda.write_row"
NON_MAX_SUPPRESSION = "cuda.non_max_suppression"
MULTI_TENSOR = "cuda.multi_tensor"
MATMUL_BLOCKS, DEQUANTIZE_BLOCKS = "cuda.matmul_blocks", "cuda.dequantize_blocks"


@dataclass(frozen=True)
class Case:
    """One program, and what it is compiled for.

    Args:
        make: Makes the program, always the same.
        kernels: Kernels that must be among those that run it.
        policy: What the compiler is told.
        variant: Entries of the first kernel's record that say which variant of it runs; None leaves it to the compiler.
        depth: How many roundings in a row there are at least; the tolerance grows with it.
        sums: How far sums of the hardware's products may be off, if that is more than a rounding to their type.
        target: As on the command line.
        options: More of what `aicf.compile` is told.
    """

    make: Callable[[], Program]
    kernels: tuple[str, ...]
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variant: Mapping[str, object] | None = None
    depth: int = 1
    sums: float = 0.0
    target: str = TARGET
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


DROPPING: Mapping[str, Any] = {"training": True}
"""Options of programs that may hold a dropout, which compiled models drop by default."""


def program_of(name: str, build: Callable[[], Graph]) -> Callable[[], Program]:
    def make() -> Program:
        module = build().module()
        differentiate(module)
        return Program(module, random_arrays(module, name))

    return make


def differentiate(module: ModuleOp) -> None:
    """Writes out the gradients that the program asks for, so that it has a meaning in NumPy."""
    for step in (AssignIdsPass(), DifferentiatePass()):
        step.apply(Context(), module)
