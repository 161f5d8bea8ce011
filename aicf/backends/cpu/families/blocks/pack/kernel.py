"""The kernel that lays block-quantised weights out in panels. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import Schedule, UndecidedKernel
from aicf.backends.common.record import OneOf, illegal, integer, read_entry, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.blocks.problem import PanelLayout
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.gemm.units import DOT_LANES
from aicf.dialects.block_bits import BLOCK_BITS
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

PANELS = "panels_of_blocks"
"""Layout of a weight for products with blocks: that of `PanelLayout`, by its `scheme` and `lanes`."""


def panels(layout: PanelLayout, shape: Sequence[int]) -> LayoutAttr:
    """The layout of a weight u8[..., rows, bytes of a row]."""
    entries: dict[str, Attribute] = {
        "bytes": integer(layout.nbytes(shape)),
        "scheme": StringAttr(layout.scheme),
        "lanes": integer(layout.lanes),
    }
    return LayoutAttr(PANELS, entries)


def read_panels(layout: LayoutAttr) -> PanelLayout:
    """The panels of a layout. Raises RecordError if an entry is missing or not legal."""
    entries = layout.parameters_.data
    scheme = read_entry(entries, "scheme", OneOf(tuple(BLOCK_BITS)))
    return PanelLayout(scheme, read_entry(entries, "lanes", OneOf(DOT_LANES)))


class PackBlocksKernel(UndecidedKernel, CpuKernel[None]):
    """Lays a weight out in panels; only ever asked for through `Kernel.prepare`."""

    id = "cpu.pack_blocks"
    version = 2
    kinds = frozenset({"pack"})

    def is_for(self, work: Workload) -> bool:
        """See `Kernel`: panels of other weights are another kernel's."""
        layout = work.results[0].layout
        return super().is_for(work) and layout is not None and layout.layout.data == PANELS

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, weight = work.results[0].layout, work.operands[0]
        assert layout is not None, "the result of work that it is for has a layout"
        own = read_panels(layout)
        if weight.dtype != "u8" or len(weight.shape) not in (2, 3) or weight.strides[-1] != 1:
            return "the weight is not rows of bytes, each in one piece"
        if weight.shape[-1] % BLOCK_SCHEMES[own.scheme].nbytes:
            return f"rows of {weight.shape[-1]} bytes are no blocks of {own.scheme}"
        stated, expected = read_integer(layout.parameters_.data, "bytes"), own.nbytes(weight.shape)
        return None if stated == expected else f"its layout's {illegal('bytes', stated, expected)}"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: a byte a cycle; run once."""
        return prod(work.operands[0].shape) / NOMINAL_GHZ / 1000

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        return {"threads": integer(1)}


def pack_record() -> KernelAttr:
    """The record of `cpu.pack_blocks`."""
    own = {
        "version": integer(PackBlocksKernel.version),
        "determinism": StringAttr(PackBlocksKernel.determinism),
    }
    return KernelAttr(PackBlocksKernel.id, own | {"threads": integer(1)})


class PackedBlocksKernel(CpuKernel[Schedule]):
    """A kernel whose packed weights lie in panels."""

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cpu.pack_blocks`."""
        return pack_record()


KERNELS = (PackBlocksKernel(),)
"""The kernel of this family."""
