"""The weight of Winograd's products: its layout, and the descriptor of the kernel that transforms it.

No code generator is imported here.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import OneOf, Record, Whole, illegal, integer, read_entry, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES, TAPS
from aicf.backends.cpu.families.conv.winograd.schedule import WinogradSpec
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.legality import level_of
from aicf.backends.cpu.families.vectors import legal_lanes
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

WINOGRAD_WEIGHT = "winograd_weight"
"""Layout of a weight: ``[element of the transformed tile][ceil(outputs / nr)][channels][nr]``, zero padded."""


def winograd_layout(spec: WinogradSpec) -> LayoutAttr:
    """The layout that the products of a spec read."""
    entries = {"bytes": spec.weight_bytes, "nr": spec.nr, "output_tile": spec.tile}
    return LayoutAttr(WINOGRAD_WEIGHT, {name: integer(value) for name, value in entries.items()})


def has_layout(layout: LayoutAttr, spec: WinogradSpec) -> bool:
    """Whether a weight with a layout is the one that the products of a spec read."""
    return layout == winograd_layout(spec)


class WinogradPackKernel(CpuKernel[int]):
    """Transforms and packs a weight for Winograd's products, vectors of so many f64 at a time; only ever asked for
    through `ConvKernel.prepare`."""

    id = "cpu.pack_winograd"
    kinds = frozenset({"pack"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, weight = work.results[0].layout, work.operands[0]
        if layout is None or layout.layout.data != WINOGRAD_WEIGHT:
            return "weights are transformed where a convolution asks for it, in @prepare"
        given = layout.parameters_.data
        tile, nr = read_entry(given, "output_tile", OneOf(OUTPUT_TILES)), read_entry(given, "nr", Whole(1))
        elements = packed_elements(weight.shape[1], weight.shape[0], nr) * (tile + TAPS - 1) ** 2
        expected, stated = elements * ELEMENT_BYTES[weight.dtype], read_integer(given, "bytes")
        return None if stated == expected else f"its layout's {illegal('bytes', stated, expected)}"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: some 60 cycles for each window; run once."""
        return prod(work.operands[0].shape[:2]) * 60 / NOMINAL_GHZ / 1000

    def schedule(self, work: Workload, target: TargetAttr) -> int:
        """See `Kernel`: elements of a vector; windows are transformed in f64."""
        return level_of(target).lanes("f64")

    def record_of(self, work: Workload, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        assert work.results[0].layout is not None, "the result of legal work has a layout"
        return _pack_entries(work.results[0].layout, schedule)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> int:
        return read_entry(record, "lanes", legal_lanes("f64"))


def winograd_pack_record(layout: LayoutAttr, level: CpuLevel) -> KernelAttr:
    """The record of `cpu.pack_winograd` that makes a layout."""
    own = {
        "version": integer(WinogradPackKernel.version),
        "determinism": StringAttr(WinogradPackKernel.determinism),
    }
    return KernelAttr(WinogradPackKernel.id, own | _pack_entries(layout, level.lanes("f64")))


def _pack_entries(layout: LayoutAttr, lanes: int) -> dict[str, Attribute]:
    given = layout.parameters_.data
    return {
        "lanes": integer(lanes),
        "threads": integer(1),
        "nr": given["nr"],
        "output_tile": given["output_tile"],
    }


KERNELS = (WinogradPackKernel(),)
"""The kernel of this family."""
