"""The kernel that widens rows of blocks. No code generator is imported here."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.record import Record, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.legality import read_threads, threads_of
from aicf.dialects.emit_types import TargetAttr

_ELEMENTS_PER_CYCLE = 2.0
_LEAST_SHARED = 65536
"""Elements from which on threads share the rows."""


class DequantizeBlocksKernel(CpuKernel[int]):
    """Rows of blocks to f32, 16 elements at a time; its schedule is how many threads share the rows."""

    id = "cpu.dequantize_blocks"
    kinds = frozenset({"dequantize_blocks"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: the bytes of a row, and its elements, lie side by side."""
        for name, each in (("packed rows", work.operands[0]), ("rows of the result", work.results[0])):
            if each.strides[-1] != 1:
                return f"the {name} are not in one piece"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        elements = prod(work.results[0].shape)
        return elements / _ELEMENTS_PER_CYCLE / NOMINAL_GHZ / 1000 / self.schedule(work, target)

    def schedule(self, work: Workload, target: TargetAttr) -> int:
        shape, threads = work.results[0].shape, threads_of(target)
        return threads if prod(shape[:-1]) >= threads and prod(shape) >= _LEAST_SHARED else 1

    def record_of(self, work: Workload, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        return {"scheme": work.attrs["scheme"], "threads": integer(schedule)}

    def read(self, work: Workload, record: Record, target: TargetAttr) -> int:
        return read_threads(record, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


KERNELS = (DequantizeBlocksKernel(),)
"""The kernel of this family."""
