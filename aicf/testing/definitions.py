"""Definitions for a test alone."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from aicf.backends.common import user_kernel
from aicf.backends.registry import forget_kernels
from aicf.dialects import custom_ops


@contextmanager
def temporary_definitions() -> Generator[None]:
    """What `aicf.custom_op` and `aicf.kernel` define inside is gone afterwards, and what they replace is back."""
    custom_ops.import_packages()
    ops, kernels = dict(custom_ops.DEFINED), dict(user_kernel.DEFINED)
    try:
        yield
    finally:
        custom_ops.DEFINED.clear()
        custom_ops.DEFINED.update(ops)
        user_kernel.DEFINED.clear()
        user_kernel.DEFINED.update(kernels)
        forget_kernels()
