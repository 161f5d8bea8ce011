"""The descriptor of the CPU kernel of poolings. No code generator is imported."""

from __future__ import annotations

from xdsl.ir import Attribute

from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import level_of, strided, threads_of, threads_reason
from aicf.backends.cpu.families.pool.schedule import (
    PoolProblem,
    PoolSpec,
    choose,
    pool_record,
    read_pool,
    read_pool_spec,
    refusal,
)
from aicf.dialects.emit_types import TargetAttr


class PoolKernel(CpuKernel[PoolSpec]):
    """The rows of a window into one row in cache, with what lies around it, and then its columns; or, where channels
    lie side by side, vectors of those over all elements of a window."""

    id = "cpu.pool"
    version = 2
    kinds = frozenset({"pool"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return refusal(_problem(work))

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self.schedule(work, target).cost_us()

    def schedule(self, work: Workload, target: TargetAttr) -> PoolSpec:
        return choose(_problem(work), level_of(target), threads_of(target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: PoolSpec) -> dict[str, Attribute]:
        return {**pool_record(schedule), **work.attrs}

    def read(self, work: Workload, record: Record, target: TargetAttr) -> PoolSpec:
        return read_pool_spec(record, _problem(work))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: PoolSpec) -> str | None:
        return threads_reason(schedule.threads, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: one order for each window, whatever the batch."""
        return self.schedule(work, target).combination_order


def _problem(work: Workload) -> PoolProblem:
    return read_pool(work.attrs, strided(work.operands[0]), strided(work.results[0]))


KERNELS = (PoolKernel(),)
"""The kernel of this family."""
