"""The kernel of generated code: loops over elements, with reductions and scans. No code generator is imported here."""

from __future__ import annotations

from math import inf

from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import (
    code_reason,
    level_of,
    may_alias,
    threads_of,
    threads_reason,
    windows_in_pads,
)
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us, sharings
from aicf.backends.cpu.families.records import loop_record, loop_spec
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import is_update
from aicf.dialects.kinds import SCALAR_PROGRAMS

PADDED_WINDOWS = 1.4
"""How much longer loops over windows take that test for each element whether it lies in the operand than a padded copy
and loops over its windows, at least: measured on one core, 1.4 to 1.5 times where windows are neighbours, 3 to 5 times
where they are two elements apart."""


class GeneratedKernel(CpuKernel[LoopSpec]):
    """Loops from the generated scalar program: pointwise chains, and reductions with what is around them.

    Version 2 adds up sums in blocks.
    """

    id = "cpu.generated"
    version = 2
    simplicity = 1
    kinds = SCALAR_PROGRAMS

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if work.code is None:
            return "it is not one set of loops over all elements"
        if is_update(work.code):
            return "it updates several tensors, each of which has loops of its own"
        return code_reason(work.code)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(*_decide(work, target))

    def unfused_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: windows in a pad take less after a padded copy; nothing else is faster unfused."""
        return self.cost_us(work, target) / PADDED_WINDOWS if windows_in_pads(work.body) else inf

    def threads_us(self, work: Workload, target: TargetAttr) -> dict[int, float]:
        nest = work_nest(work)
        found = sharings(nest, level_of(target), threads_of(target), work.batch_invariant, work.rounding)
        return {spec.threads: cost_us(nest, spec) for spec in found}

    def schedule(self, work: Workload, target: TargetAttr) -> LoopSpec:
        return _decide(work, target)[1]

    def record_of(self, work: Workload, target: TargetAttr, schedule: LoopSpec) -> dict[str, Attribute]:
        assert work.code is not None
        kinds_in = [operand.dtype for operand in work.operands]
        aliases = may_alias(work.code, kinds_in, [result.dtype for result in work.results])
        return {**loop_record(schedule, work_nest(work)), "may_alias": aliases}

    def read(self, work: Workload, record: Record, target: TargetAttr) -> LoopSpec:
        return loop_spec(record, work_nest(work))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: LoopSpec) -> str | None:
        return threads_reason(schedule.threads, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        nest, spec = _decide(work, target)
        return spec.combination_order(nest)


def _decide(work: Workload, target: TargetAttr) -> tuple[LoopNest, LoopSpec]:
    nest = work_nest(work)
    level, threads = level_of(target), threads_of(target)
    return nest, choose(nest, level, threads, work.batch_invariant, work.rounding)


def work_nest(work: Workload) -> LoopNest:
    """The loops of a work with generated code."""
    assert work.code is not None
    operands = (*work.operands, *work.results)
    return nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])


KERNELS = (GeneratedKernel(),)
"""The kernel of this family."""
