"""The weight of convolutions of quads: its layout, and the descriptor of the kernel that packs it.

No code generator is imported here.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import OneOf, Record, Whole, illegal, integer, read_entry, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.pack.schedule import packed_bytes
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.gemm.units import DOT_LANES, QUADS_FEATURE
from aicf.backends.cpu.families.legality import level_of
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

QUADS_WEIGHT = "quads_weight"
"""Layout of a weight, see `template.py`: ``[ceil(outputs / nr)][channels / 4 * elements of the window][nr]`` quads,
with a row before those of each panel if there is a shift."""


def quads_layout(spec: ConvSpec) -> LayoutAttr:
    """The layout that tiles of a spec read."""
    nbytes = packed_bytes("i32", spec.problem.steps + spec.start_rows, spec.weight_columns, spec.nr)
    entries = {"bytes": nbytes, "nr": spec.nr, "lanes": spec.lanes, "shift": spec.problem.shift}
    return LayoutAttr(QUADS_WEIGHT, {name: integer(value) for name, value in entries.items()})


class QuadsPackKernel(CpuKernel[int]):
    """Packs a weight of i8 in quads of channels; only ever asked for through `ConvKernel.prepare`."""

    id = "cpu.pack_quads"
    kinds = frozenset({"pack"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, weight = work.results[0].layout, work.operands[0]
        if layout is None or layout.layout.data != QUADS_WEIGHT:
            return "quads are packed where a convolution asks for it, in @prepare"
        if weight.dtype != "i8":
            return f"quads of a weight are of i8, not {weight.dtype}"
        if QUADS_FEATURE not in level_of(target).features:
            return f"quads need {QUADS_FEATURE}, which the target is without"
        given = layout.parameters_.data
        nr, shift = read_entry(given, "nr", Whole(1)), read_entry(given, "shift", OneOf((0, 128)))
        rows = -(-weight.shape[1] // 4) * prod(weight.shape[2:]) + (shift != 0)
        expected, stated = packed_bytes("i32", rows, weight.shape[0], nr), read_integer(given, "bytes")
        return None if stated == expected else f"its layout's {illegal('bytes', stated, expected)}"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: two cycles a byte; run once."""
        return prod(work.operands[0].shape) * 2 / NOMINAL_GHZ / 1000

    def schedule(self, work: Workload, target: TargetAttr) -> int:
        """See `Kernel`: quads of a vector."""
        layout = work.results[0].layout
        assert layout is not None, "the result of legal work has a layout"
        return read_integer(layout.parameters_.data, "lanes")

    def record_of(self, work: Workload, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        assert work.results[0].layout is not None, "the result of legal work has a layout"
        return _pack_entries(work.results[0].layout)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> int:
        return read_entry(record, "lanes", OneOf(DOT_LANES))


def quads_pack_record(layout: LayoutAttr) -> KernelAttr:
    """The record of `cpu.pack_quads` that makes a layout."""
    own = {
        "version": integer(QuadsPackKernel.version),
        "determinism": StringAttr(QuadsPackKernel.determinism),
    }
    return KernelAttr(QuadsPackKernel.id, own | _pack_entries(layout))


def _pack_entries(layout: LayoutAttr) -> dict[str, Attribute]:
    given = layout.parameters_.data
    return {"threads": integer(1), **{name: given[name] for name in ("lanes", "nr", "shift")}}


KERNELS = (QuadsPackKernel(),)
"""The kernel of this family."""
