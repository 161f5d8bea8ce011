"""Tests for kernels of your own: `check_kernel` holds one to its meaning."""

from __future__ import annotations

from aicf.testing.check_kernel import KernelCheck, KernelMistake, check_kernel
from aicf.testing.definitions import temporary_definitions

__all__ = ["KernelCheck", "KernelMistake", "check_kernel", "temporary_definitions"]
