"""All kernels of the backend, in the order in which they are considered. Imports no code generator."""

from __future__ import annotations

from aicf.backends.base import KernelDescriptor
from aicf.backends.cuda.cublaslt_kernels import KERNELS as CUBLASLT

KERNELS: tuple[KernelDescriptor, ...] = (*CUBLASLT,)
