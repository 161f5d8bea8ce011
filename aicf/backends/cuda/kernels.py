"""All kernels of the backend, in the order in which they are considered. Imports no code generator."""

from __future__ import annotations

from aicf.backends.base import KernelDescriptor
from aicf.backends.cuda import attention_kernels

KERNELS: tuple[KernelDescriptor, ...] = (*attention_kernels.KERNELS,)
