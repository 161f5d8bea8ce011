"""Kernels of users: functions that Numba compiles, and C functions. No code generator is imported here."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Launch
from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.record import Record, integer
from aicf.backends.common.user_code import CpuFunction, SharedFunction
from aicf.backends.common.user_kernel import Problem, UserKernelBase
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.runtime.shared_functions import table_name
from aicf.backends.cpu.target import host_architecture, level_named
from aicf.errors import PolicyError

NUMBA_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "i1": "uint8",
}
"""Element types that a function for processors takes, by what its pointers are to."""


class CpuUserKernel(UserKernelBase, CpuKernel[None]):
    """A kernel of a user; one thread runs it."""

    reads_body = False

    @property
    def code_generator(self) -> str:
        return "aicf.backends.cpu.families.custom.codegen"

    def code_reason(self, problem: Problem) -> str | None:
        """See `UserKernelBase`: C functions take what they take, Numba knows numbers of a processor alone."""
        code = self.spec.code
        if isinstance(code, SharedFunction):
            return None
        if not isinstance(code, CpuFunction):
            raise PolicyError(f"kernel '{self.id}': its code is a {code.description}, which cpu does not run")
        architecture = level_named(problem.arch).architecture
        if architecture not in ("", host_architecture()):
            return f"Numba compiles for this machine's processor, not for {architecture}; compile on such a machine"
        dtypes = (tensor.dtype for tensor in (*problem.operands, *problem.results))
        wrong = next((dtype for dtype in dtypes if dtype not in NUMBA_TYPES), None)
        if wrong is None:
            return None
        return f"element type {wrong} has no pointers in Numba; it takes {', '.join(NUMBA_TYPES)}"

    def more_entries(self, problem: Problem) -> dict[str, Attribute]:
        code = self.spec.code
        called = {"library": StringAttr(code.library)} if isinstance(code, SharedFunction) else {}
        return {"threads": integer(1), **called}

    def flushes_subnormals(self, record: Record) -> bool:
        return False

    def library_function(self, launch: Launch) -> str | None:
        """See `CpuKernel`: a C function is called through the table, a function of Numba is part of the program."""
        code = self.spec.code
        return table_name(code.library, code.symbol) if isinstance(code, SharedFunction) else None


KERNELS: tuple[AnyKernel, ...] = ()
"""None of its own: packages define them."""
