"""All kernels of the backend, in the order in which they are considered. Imports no code generator."""

from __future__ import annotations

from aicf.backends.base import KernelDescriptor
from aicf.backends.cuda import generated_kernels

KERNELS: tuple[KernelDescriptor, ...] = (*generated_kernels.KERNELS,)
