"""The descriptor of the kernel of poolings. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import Record
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.loops.kernel import operand_reason
from aicf.backends.cuda.families.pool.problem import PoolProblem, read_pool, refusal
from aicf.backends.cuda.families.pool.schedule import (
    PoolSpec,
    contradiction,
    offered,
    pool_record,
    read_spec,
    widest,
)
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import TargetAttr


class PoolKernel(CudaKernel[PoolSpec]):
    """A thread has a vector of channels of some neighbouring results; several threads share a long window."""

    id = "cuda.pool"
    kinds = frozenset({"pool"})

    def problem(self, work: Workload) -> PoolProblem:
        """The pooling that a work asks for."""
        return read_pool(work.attrs, strided(work.operands[0]), strided(work.results[0]))

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return operand_reason(work) or refusal(self.problem(work))

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self.schedule(work, target).cost_us(arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> PoolSpec:
        return self._offered(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Record]:
        return [self.record_of(work, target, spec) for spec in self._offered(work, target)]

    def record_of(self, work: Workload, target: TargetAttr, schedule: PoolSpec) -> dict[str, Attribute]:
        return {
            **pool_record(schedule),
            **work.attrs,
            "rounding": StringAttr(work.rounding),
            **start_entries(arch_named(target.arch.data)),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> PoolSpec:
        return read_spec(record, self.problem(work))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: PoolSpec) -> str | None:
        return contradiction(schedule, widest(schedule.problem, _offsets(work)))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: one order for each window, whatever the batch."""
        return self.schedule(work, target).combination_order

    def _offered(self, work: Workload, target: TargetAttr) -> list[PoolSpec]:
        return offered(self.problem(work), _offsets(work), arch_named(target.arch.data))


def strided(info: OperandInfo) -> Strided:
    """An operand by its sizes, strides and type."""
    return Strided(info.shape, info.strides, info.dtype)


def _offsets(work: Workload) -> tuple[int, int]:
    """Elements from aligned addresses to the operand and the result."""
    return work.operands[0].offset, work.results[0].offset


KERNELS = (PoolKernel(),)
"""The kernel of this family."""
