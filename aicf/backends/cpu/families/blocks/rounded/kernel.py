"""The kernel of products of blocks with rounded numbers. No code generator is imported here."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.packed_weights import block_weight_reason
from aicf.backends.common.record import RecordCodec, integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.blocks.pack.kernel import PackedBlocksKernel, panels
from aicf.backends.cpu.families.blocks.problem import BlocksProblem, PanelLayout
from aicf.backends.cpu.families.blocks.rounded.schedule import (
    RoundedSchedule,
    choose,
    cost_us,
    thread_bytes,
)
from aicf.backends.cpu.families.legality import lanes_reason, level_of, strided, threads_of, threads_reason
from aicf.dialects.block_bits import BLOCK_BITS
from aicf.dialects.emit_types import TargetAttr


class RoundedMatmulBlocksKernel(PackedBlocksKernel[RoundedSchedule]):
    """Panels of packed rows against rows of x of which each element becomes a signed byte.

    Four products of bytes are added by one instruction with avx512vnni, and by two elsewhere on x86-64. Sums within
    neighbours that share a step are exact, so all levels with as many lanes give the same bits.
    """

    id = "cpu.rounded_matmul_blocks"
    kinds = frozenset({"rounded_matmul_blocks"})
    codec = RecordCodec(RoundedSchedule)

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: products of bytes, and a weight in one piece, which no program overwrites."""
        weight, scheme = work.operands[1], read_text(work.attrs, "scheme")
        if level_of(target).architecture != "x86_64":
            return f"{level_of(target).name} has no products of bytes"
        if BLOCK_BITS[scheme].floats is not None:
            return f"the codes of {scheme} are floats"
        return block_weight_reason(weight)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(_problem(work), self.schedule(work, target), level_of(target))

    def schedule(self, work: Workload, target: TargetAttr) -> RoundedSchedule:
        return choose(_problem(work), level_of(target), threads_of(target))

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: RoundedSchedule
    ) -> dict[str, Attribute]:
        problem = _problem(work)
        layout = PanelLayout(problem.scheme, schedule.lanes)
        return {
            **self.codec.entries(schedule),
            "scheme": work.attrs["scheme"],
            "workspace_bytes": integer(schedule.threads * thread_bytes(problem, schedule)),
            "combination_order": StringAttr(schedule.combination_order),
            "layouts": ArrayAttr([UnitAttr(), panels(layout, work.operands[1].shape)]),
        }

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: RoundedSchedule) -> str | None:
        return lanes_reason(schedule.lanes, level_of(target)) or threads_reason(schedule.threads, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: parts in order, whatever the tile."""
        return self.schedule(work, target).combination_order


def _problem(work: Workload) -> BlocksProblem:
    scheme = read_text(work.attrs, "scheme")
    return BlocksProblem(scheme, strided(work.operands[0]), strided(work.results[0]))


KERNELS = (RoundedMatmulBlocksKernel(),)
"""The kernel of this family."""
