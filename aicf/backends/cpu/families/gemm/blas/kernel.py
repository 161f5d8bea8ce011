"""The kernel that calls the GEMM of an optional BLAS. No code generator is imported here."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Launch
from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.problem import gemm_reason, read_work
from aicf.backends.cpu.families.gemm.schedule import (
    NOMINAL_GHZ,
    traffic_cycles,
)
from aicf.backends.cpu.families.legality import level_of
from aicf.backends.cpu.runtime.blas import FUNCTIONS, LIBRARY, table_name
from aicf.backends.cpu.target import ELEMENT_BYTES
from aicf.dialects.emit_types import TargetAttr


class BlasKernel(UndecidedKernel, CpuKernel[None]):
    """The GEMM of scipy-openblas64, called through the pointer table. The library decides, the same for one version and
    core."""

    id = "cpu.gemm_blas"
    library = "openblas"
    simplicity = 5
    kinds = frozenset({"gemm"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := gemm_reason(work)) is not None:
            return reason
        if work.operands[0].dtype not in ("f32", "f64"):
            return f"{LIBRARY} multiplies f32 and f64 only"
        if library_version(target) is None:
            return f"the target lists no {LIBRARY}: pip install scipy-openblas64 and resolve the target on that machine"
        gemm = read_work(work)
        problem, output = gemm.problem, gemm.accesses[0][0]
        if min(problem.m, problem.n, problem.k) == 0:
            return "nothing to multiply"
        for what, strides in (("A", problem.a_strides), ("B", problem.b_strides), ("C", output.strides[-2:])):
            if 1 not in strides or min(strides) < 1 or (what == "C" and strides[1] != 1):
                return (
                    f"{LIBRARY} needs contiguous rows or columns, the strides of {what} are {list(strides)}"
                )
        sizes = {"A": (problem.m, problem.k), "B": (problem.k, problem.n)}
        for what, strides in (("A", problem.a_strides), ("B", problem.b_strides)):
            if _overlaps(sizes[what], strides):
                return f"{LIBRARY} takes no rows that overlap, the strides of {what} are {list(strides)}"
        return None

    def library_function(self, launch: Launch) -> str:
        return library_function(launch)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: call overhead, packing of both operands as fast as B comes from its level of cache,
        80 % of the arithmetic peak."""
        problem = read_work(work).problem
        level = level_of(target)
        peak = 2.0 * level.lanes(problem.dtype) * (1.0 if level.has_fma else 0.5)
        b_bytes = problem.k * problem.n * ELEMENT_BYTES[problem.dtype]
        packing = max((problem.m + problem.n) * problem.k * 0.25, traffic_cycles(b_bytes))
        cycles = problem.m * problem.n * problem.k / peak / 0.8 + packing + 1200
        return cycles * prod(problem.batch) / NOMINAL_GHZ / 1000

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        version = library_version(target)
        assert version is not None
        return {
            "transpose_a": work.attrs["transpose_a"],
            "transpose_b": work.attrs["transpose_b"],
            "batch_in_rows": integer(read_work(work).batch_in_rows),
            "threads": integer(1),
            "library": StringAttr(version),
            "combination_order": StringAttr("the library's, fixed by version and core"),
        }


def _overlaps(sizes: tuple[int, int], strides: tuple[int, int]) -> bool:
    """Whether lines of a matrix that are contiguous reach into the next one, as those of a window do."""
    inner = 1 if strides[1] == 1 else 0
    return sizes[1 - inner] > 1 and strides[1 - inner] < sizes[inner]


def library_function(launch: Launch) -> str:
    """Name in the function table of the function that multiplies matrices of the type of a launch."""
    return table_name(FUNCTIONS[launch.ins[0].dtype], read_text(launch.record, "library"))


def library_version(target: TargetAttr) -> str | None:
    """Version and core of scipy-openblas64 as the target lists it."""
    libraries = target.facts.data.get("libraries")
    version = libraries.data.get(LIBRARY) if isinstance(libraries, DictionaryAttr) else None
    return version.data if isinstance(version, StringAttr) else None


KERNELS = (BlasKernel(),)
"""The kernel of this family."""
