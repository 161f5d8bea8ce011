"""All kernels of the backend, in the order in which they are considered. Imports no code generator."""

from __future__ import annotations

from aicf.backends.base import KernelDescriptor

KERNELS: tuple[KernelDescriptor, ...] = ()
