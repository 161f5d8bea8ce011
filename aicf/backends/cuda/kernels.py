"""All kernels of the backend, in the order in which they are considered. Imports no code generator."""

from __future__ import annotations

from aicf.backends.base import KernelDescriptor
from aicf.backends.cuda import (
    attention_kernels,
    attention_step_kernels,
    attention_wgmma_kernels,
    cublaslt_kernels,
    detection_kernels,
    gemm_norm_kernels,
    gemv_kernels,
    generated_kernels,
    mma_kernels,
    place_kernels,
    scatter_kernels,
    simt_kernels,
    update_kernels,
    wgmma_kernels,
)

KERNELS: tuple[KernelDescriptor, ...] = (
    cublaslt_kernels.CublasLtKernel(),
    wgmma_kernels.WgmmaKernel(),
    wgmma_kernels.WgmmaTf32Kernel(),
    gemm_norm_kernels.GemmNormKernel(),
    mma_kernels.MmaKernel(),
    mma_kernels.MmaTf32Kernel(),
    gemv_kernels.GemvKernel(),
    simt_kernels.SimtKernel(),
    attention_wgmma_kernels.WgmmaAttentionKernel(),
    attention_step_kernels.AttentionStepKernel(),
    *attention_kernels.KERNELS,
    *generated_kernels.KERNELS,
    *place_kernels.KERNELS,
    *detection_kernels.KERNELS,
    scatter_kernels.SortedScatterKernel(),
    *update_kernels.KERNELS,
)
