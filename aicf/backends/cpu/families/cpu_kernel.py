"""`CpuKernel`: what the kernels of this backend also say of their code. No code generator is imported here."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.kernel import Kernel, Schedule
from aicf.backends.common.record import Record


class CpuKernel(Kernel[Schedule]):
    """A kernel whose code generator has a function `emit(em, launch, call)`, which writes the code."""

    reads_body: bool = False
    """Whether its code follows from the body too, not from record, operands and scalar program alone."""

    def flushes_subnormals(self, record: Record) -> bool:
        """Whether its code takes numbers below the smallest normal one for 0."""
        return False

    def library_function(self, launch: Launch) -> str | None:
        """Name in the function table of the library function that an instruction calls; None if it calls none."""
        return None
