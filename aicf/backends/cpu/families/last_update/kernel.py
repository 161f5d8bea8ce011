"""The kernel that finds the last update of each row. No code generator is imported here."""

from __future__ import annotations

from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.dialects.emit_types import TargetAttr

_LOOKUP_CYCLES = 6
"""Of one index: load, check, jump."""


class LastUpdateKernel(UndecidedKernel, CpuKernel[None]):
    """One pass over the indices; later ones overwrite."""

    id = "cpu.last_update"
    kinds = frozenset({"last_update"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        cycles = work.operands[0].shape[0] * _LOOKUP_CYCLES + work.results[0].shape[0] / 4
        return cycles / NOMINAL_GHZ / 1000

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        return {"threads": integer(1)}

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: whole numbers, of which the largest is exact."""
        return "none"


KERNELS = (LastUpdateKernel(),)
"""The kernel of this family."""
