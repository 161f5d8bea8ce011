"""Kernels of users: functions that Numba compiles, and CUDA C++. No code generator is imported here."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.user_code import CudaFunction, CudaSource
from aicf.backends.common.user_kernel import LaunchShape, Problem, UserKernelBase
from aicf.backends.cuda.families.records import BLOCK_THREADS, CudaKernel, Shape
from aicf.backends.cuda.target import arch_named
from aicf.errors import PolicyError

NUMBA_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "i1": "boolean",
}
"""Element types of the arrays that a function of Numba takes: its short floats call a library that is not linked."""
_GRID = (2**31 - 1, 65_535, 65_535)
"""Most blocks along each dimension."""


class CudaUserKernel(UserKernelBase, CudaKernel[None]):
    """A kernel of a user: one launch, which waits for what it reads and starts nothing early."""

    TRAFFIC_BYTES_PER_US = 1_000_000.0

    @property
    def code_generator(self) -> str:
        return "aicf.backends.cuda.families.custom.codegen"

    def code_reason(self, problem: Problem) -> str | None:
        """See `UserKernelBase`: the types that Numba has, and a launch that the GPU has room for."""
        code = self.spec.code
        if not isinstance(code, CudaFunction | CudaSource):
            raise PolicyError(
                f"kernel '{self.id}': its code is a {code.description}, which cuda does not run"
            )
        if isinstance(code, CudaFunction):
            dtypes = (tensor.dtype for tensor in (*problem.operands, *problem.results))
            wrong = next((dtype for dtype in dtypes if dtype not in NUMBA_TYPES), None)
            if wrong is not None:
                return f"element type {wrong} has no arrays in Numba; it takes {', '.join(NUMBA_TYPES)}"
        return _launch_reason(self._launch(problem), problem.arch)

    def _launch(self, problem: Problem) -> LaunchShape:
        launch = self.spec.ask(self.spec.launch, problem)
        if not isinstance(launch, LaunchShape):
            raise PolicyError(f"kernel '{self.id}': launch gives {launch!r}; it is a LaunchShape")
        return launch

    def more_entries(self, problem: Problem) -> dict[str, Attribute]:
        launch = self._launch(problem)
        return Shape(launch.grid, launch.block, shared_bytes=launch.shared_bytes).entries()


def _launch_reason(launch: LaunchShape, arch: str) -> str | None:
    """Why a GPU cannot launch so many blocks, threads and bytes; None if it can."""
    sizes = (*launch.grid, *launch.block)
    if len(launch.grid) != 3 or len(launch.block) != 3 or min(sizes) < 1:
        return (
            f"its launch has grid {launch.grid} and block {launch.block}; each is three sizes of at least 1"
        )
    if prod(launch.block) > BLOCK_THREADS or launch.block[2] > 64:
        return f"its block {launch.block} has more threads than the {BLOCK_THREADS} that a GPU has room for"
    if any(size > most for size, most in zip(launch.grid, _GRID, strict=True)):
        return f"its grid {launch.grid} has more blocks than {_GRID}"
    room = arch_named(arch).shared_bytes
    if not 0 <= launch.shared_bytes <= room:
        return f"a block takes {launch.shared_bytes} bytes of shared memory, {arch} has {room}"
    return None


KERNELS: tuple[AnyKernel, ...] = ()
"""None of its own: packages define them."""
