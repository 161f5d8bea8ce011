"""The kernel that finds the indices of the largest elements. No code generator is imported here."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.record import Record, integer, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.legality import (
    read_threads,
    threads_of,
)
from aicf.dialects.emit_types import TargetAttr

_STEP_CYCLES = 3
"""Of one comparison of two elements."""


class TopkKernel(CpuKernel[int]):
    """Each row once, with the best so far kept in order."""

    id = "cpu.topk"
    kinds = frozenset({"topk_indices"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: an element of a random row enters the best k with k / i, and moves half of them."""
        axis = read_integer(work.attrs, "axis")
        size, k = work.operands[0].shape[axis], work.results[0].shape[axis]
        rows = prod(work.operands[0].shape) // size
        entered = min(size, k * (1 + max(0.0, (size / k) - 1) ** 0.5))
        cycles = rows * (size + entered * k / 2) * _STEP_CYCLES
        return cycles / NOMINAL_GHZ / 1000 / self.schedule(work, target)

    def record_of(self, work: Workload, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        return {
            "axis": work.attrs["axis"],
            "smallest": work.attrs["smallest"],
            "threads": integer(schedule),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> int:
        return read_threads(record, target)

    def schedule(self, work: Workload, target: TargetAttr) -> int:
        """See `Kernel`: all threads, if each has rows enough for a barrier to pay."""
        elements = prod(work.operands[0].shape)
        rows = elements // work.operands[0].shape[read_integer(work.attrs, "axis")]
        threads = threads_of(target)
        return threads if rows >= threads and elements >= 16384 else 1

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: elements are compared, and nothing is combined."""
        return "none"


KERNELS = (TopkKernel(),)
"""The kernel of this family."""
