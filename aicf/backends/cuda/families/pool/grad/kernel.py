"""The descriptor of the kernel of gradients of poolings. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.loops.kernel import operand_reason
from aicf.backends.cuda.families.pool.grad.problem import GradProblem, read_grad, refusal
from aicf.backends.cuda.families.pool.grad.schedule import (
    GradSpec,
    contradiction,
    grad_record,
    offered,
    read_spec,
    widest,
)
from aicf.backends.cuda.families.pool.kernel import strided
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import TargetAttr


class MaxPoolGradKernel(CudaKernel[GradSpec]):
    """Each thread gathers: it reads the windows that reach some neighbouring elements, and adds the gradients of those
    whose largest element they are. Nothing is added in memory, so that sums are the same in every run."""

    id = "cuda.max_pool_grad"
    kinds = frozenset({"max_pool_grad"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return operand_reason(work) or refusal(_problem(work))

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self.schedule(work, target).cost_us(arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> GradSpec:
        return _offered(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Record]:
        return [self.record_of(work, target, spec) for spec in _offered(work, target)]

    def record_of(self, work: Workload, target: TargetAttr, schedule: GradSpec) -> dict[str, Attribute]:
        return {
            **grad_record(schedule),
            **work.attrs,
            "rounding": StringAttr(work.rounding),
            "combination_order": StringAttr(_ORDER),
            **start_entries(arch_named(target.arch.data)),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> GradSpec:
        return read_spec(record, _problem(work))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: GradSpec) -> str | None:
        return contradiction(schedule, widest(schedule.problem, _offsets(work)))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: one order for each element, whatever the batch."""
        return _ORDER


_ORDER = "the windows that reach an element, ascending"


def _offered(work: Workload, target: TargetAttr) -> list[GradSpec]:
    return offered(_problem(work), _offsets(work), arch_named(target.arch.data))


def _problem(work: Workload) -> GradProblem:
    taps, grad = map(strided, work.operands)
    return read_grad(work.attrs, taps, grad, strided(work.results[0]))


def _offsets(work: Workload) -> tuple[int, int, int]:
    """Elements from aligned addresses to the result, the taps and the gradient."""
    taps, grad = work.operands
    return work.results[0].offset, taps.offset, grad.offset


KERNELS = (MaxPoolGradKernel(),)
"""The kernel of this family."""
