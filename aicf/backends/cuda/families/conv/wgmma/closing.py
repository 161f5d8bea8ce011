"""The launch after a convolution that combines the parts of statistics: the last one of columns that come in parts."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.kernel import EARLY_READS, TRIGGERS
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.conv.wgmma.moments import Statistics, closing_nest, closing_spec
from aicf.backends.cuda.families.gemm.wgmma.schedule import STATISTICS_ROWS
from aicf.backends.cuda.families.loops.cells import packed
from aicf.backends.cuda.families.loops.codegen import closing_launch
from aicf.backends.cuda.families.loops.kernel import spec_record
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.welford import MomentCode


class LeftMomentCode(MomentCode):
    """Columns whose parts are `STATISTICS_ROWS` elements each, and have their means as they are."""

    def part_rows(self) -> int:
        return STATISTICS_ROWS

    def from_first(self, phase: int) -> Snippet:
        found = super().from_first(phase)
        if not self._is_first(phase):
            return found
        return Snippet(found.params, (), packed(["f32(0.0)"] * self.columns))


def combine_statistics(
    launch: Launch, parts: Statistics, stored: BufferRef, others: Sequence[BufferRef]
) -> KernelLaunch:
    """The second launch of an instruction that takes statistics of channels.

    Args:
        stored: The result whose statistics these are.
        others: Operands and results of each channel.
    """
    nest = closing_nest(parts.closing, stored, others)
    start = {key: launch.record[key] for key in (EARLY_READS, TRIGGERS, "rounding") if key in launch.record}
    grids: Attribute = ArrayAttr(
        [launch.record["sum_grid"]] * 2
    )  # of the first launch only its parts are of use
    record = {
        **spec_record(nest, closing_spec(nest)),
        "grids": grids,
        "block": launch.record["sum_block"],
        **start,
    }
    refs = (stored, *others)
    code = LeftMomentCode if parts.summed is None else PhaseCode
    return closing_launch("conv_moments", nest, record, refs, launch.ws, code)
