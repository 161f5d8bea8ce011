"""The kernel of products with block-quantised weights. No code generator is imported here."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.packed_weights import block_weight_reason, narrow_reason
from aicf.backends.common.record import RecordCodec, integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.blocks.pack.kernel import PackedBlocksKernel, panels
from aicf.backends.cpu.families.blocks.problem import BlocksProblem, PanelLayout, problem_of
from aicf.backends.cpu.families.blocks.schedule import (
    BlocksSchedule,
    choose,
    cost_us,
    schedule_reason,
    thread_bytes,
)
from aicf.backends.cpu.families.legality import level_of, strided, threads_of, threads_reason
from aicf.dialects.emit_types import TargetAttr


class MatmulBlocksKernel(PackedBlocksKernel[BlocksSchedule]):
    """Panels of packed rows against rows of x that are prepared once.

    On x86 an element of x is three signed bytes (or, without avx512vnni, one and 16 bits) and an exponent that a part
    shares: 32 elements, or 16 or 128 by the scheme. So it is rounded to a step of about 2^-22 of the largest of its
    part; products of whole numbers and their sums are exact. Elsewhere, and for codes that are floats, codes are
    widened to f32.
    """

    id = "cpu.matmul_blocks"
    version = 2
    kinds = frozenset({"matmul_blocks"})
    codec = RecordCodec(BlocksSchedule)

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a weight in one piece, which no program overwrites."""
        return narrow_reason(work) or block_weight_reason(work.operands[1])

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(_problem(work), self.schedule(work, target))

    def schedule(self, work: Workload, target: TargetAttr) -> BlocksSchedule:
        return choose(_problem(work), level_of(target), threads_of(target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: BlocksSchedule) -> dict[str, Attribute]:
        problem = _problem(work)
        layout = PanelLayout(problem.scheme, schedule.lanes)
        return {
            **self.codec.entries(schedule),
            "scheme": work.attrs["scheme"],
            "workspace_bytes": integer(schedule.threads * thread_bytes(problem, schedule)),
            "combination_order": StringAttr(schedule.combination_order),
            "layouts": ArrayAttr([UnitAttr(), panels(layout, work.operands[1].shape)]),
        }

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: BlocksSchedule) -> str | None:
        return schedule_reason(_problem(work), schedule, level_of(target)) or threads_reason(
            schedule.threads, target
        )

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: parts in order, whatever the tile."""
        return self.schedule(work, target).combination_order


def _problem(work: Workload) -> BlocksProblem:
    x, weight, *indices = work.operands
    return problem_of(
        read_text(work.attrs, "scheme"),
        strided(x),
        strided(work.results[0]),
        weight.shape,
        *map(strided, indices),
    )


KERNELS = (MatmulBlocksKernel(),)
"""The kernel of this family."""
