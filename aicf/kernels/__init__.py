"""Ops and kernels of your own: `aicf.custom_op` defines an op, `aicf.kernel` what runs one.

A package calls both as it is imported. One that is installed names its module under the entry point group
`aicf.kernels`, and is then found by every compile; else import it before.
"""

from __future__ import annotations

from aicf.backends.common.user_code import CpuFunction, CudaFunction, CudaSource, SharedFunction
from aicf.backends.common.user_kernel import LaunchShape, Problem, Tensor, UserKernel
from aicf.dialects.custom_ops import OpDefinition, TensorSpec
from aicf.kernels.definitions import custom_op, kernel

__all__ = [
    "CpuFunction",
    "CudaFunction",
    "CudaSource",
    "LaunchShape",
    "OpDefinition",
    "Problem",
    "SharedFunction",
    "Tensor",
    "TensorSpec",
    "UserKernel",
    "custom_op",
    "kernel",
]
