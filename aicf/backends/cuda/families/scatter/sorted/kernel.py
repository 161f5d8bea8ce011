"""Descriptor of the kernel that scatters by sorting. No code generator is imported.

`schedule.py` has its decisions, `codegen.py` turns its records into launches.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.scatter.kernel import (
    IN_PLACE,
    LAUNCH_US,
    ORDER,
    CombiningKernel,
    launch_entries,
)
from aicf.backends.cuda.families.scatter.sorted.schedule import CODEC, ENTRY_BYTES, SortSpec, decide
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import TargetAttr

_UPDATE_US = 0.2
"""Of an update after another in a list. Measured on an H100: 886 us for 16 rows with 4096 updates each."""


class SortedScatterKernel(CombiningKernel):
    """Sorts the indices by row, stably; then the threads of a row take its updates in order."""

    id = "cuda.scatter_sorted"
    simplicity = 1

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: each pass reads the entries twice, and writes each to a sector of its own."""
        arch, spec = arch_named(target.arch.data), _spec(work, target)
        operand, _, updates = work.operands
        moved = (2 * prod(operand.shape) + prod(updates.shape)) * ELEMENT_BYTES[operand.dtype] + 8 * spec.rows
        sorted_ = spec.passes * spec.count * (2 * ENTRY_BYTES + 32)
        lists = _UPDATE_US * spec.count / spec.rows
        return LAUNCH_US * len(spec.grids) + (moved + sorted_) / arch.bandwidth_gbs / 1e3 + lists

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        spec = _spec(work, target)
        return {
            "mode": work.attrs["mode"],
            **CODEC.entries(spec),
            "looks": integer(spec.looks),
            "combination_order": StringAttr(ORDER),
            "workspace_bytes": integer(spec.workspace_bytes),
            "may_alias": IN_PLACE,
            **launch_entries(work, target, *spec.grids),
        }


def _spec(work: Workload, target: TargetAttr) -> SortSpec:
    operand, indices, updates = work.operands
    return decide(operand, indices, updates, work.results[0], arch_named(target.arch.data))


KERNELS = (SortedScatterKernel(),)
"""The kernel of this family."""
