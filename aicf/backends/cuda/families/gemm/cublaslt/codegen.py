"""From a `cuda.cublaslt` record to the call that is captured."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import LibraryCall
from aicf.backends.cuda.families.gemm.cublaslt.kernel import CublasLtKernel
from aicf.backends.cuda.families.library.launch import library_call


def emit(launch: Launch) -> Sequence[LibraryCall]:
    """The call of one instruction."""
    return [library_call(launch, CublasLtKernel.function, CublasLtKernel.result)]
