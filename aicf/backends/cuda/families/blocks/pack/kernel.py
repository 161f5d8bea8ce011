"""The kernel that lays block-quantised weights out in tiles. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import illegal, integer, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.blocks.layout import PANEL_ROWS, TILES, TileLayout, has_tiles, read_layout
from aicf.backends.cuda.families.records import CudaKernel, Shape, start_entries
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

THREADS = 128
"""Of a block; 32 of them write a tile."""


class PackBlocksKernel(UndecidedKernel, CudaKernel[None]):
    """Lays a weight out in tiles; only ever asked for through `Kernel.prepare`."""

    id = "cuda.pack_blocks"
    version = 2
    kinds = frozenset({"pack"})

    def is_for(self, work: Workload) -> bool:
        """See `Kernel`: tiles of other weights are another kernel's."""
        layout = work.results[0].layout
        return super().is_for(work) and layout is not None and layout.layout.data == TILES

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, weight = work.results[0].layout, work.operands[0]
        assert layout is not None, "the result of work that it is for has a layout"
        own = read_layout(layout)
        if (reason := has_tiles(own.scheme)) is not None:
            return reason
        if weight.dtype != "u8" or len(weight.shape) != 2 or weight.strides[1] != 1:
            return "the weight is not rows of bytes, each in one piece"
        if weight.shape[1] % own.stored.nbytes:
            return f"rows of {weight.shape[1]} bytes are no blocks of {own.scheme}"
        if weight.offset % 2 or weight.strides[0] % 2:
            return "rows of the weight start at odd bytes"
        stated, expected = read_integer(layout.parameters_.data, "bytes"), own.nbytes(*weight.shape)
        return None if stated == expected else f"its layout's {illegal('bytes', stated, expected)}"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: a copy at half the speed of memory; run once."""
        rows, row_bytes = work.operands[0].shape
        return 2 * 2 * rows * row_bytes / arch_named(target.arch.data).bandwidth_gbs / 1e3

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        layout = work.results[0].layout
        assert layout is not None, "the result of work that it is for has a layout"
        return _entries(read_layout(layout), work.operands[0].shape, arch_named(target.arch.data))


def tiles_of(layout: TileLayout, shape: Sequence[int]) -> int:
    """Tiles of a weight of so many rows and bytes of a row."""
    return layout.nbytes(*shape) // layout.tile_bytes


def panels_of(rows: int) -> int:
    """Panels of a weight."""
    return -(-rows // PANEL_ROWS)


def _entries(layout: TileLayout, shape: Sequence[int], arch: GpuArch) -> dict[str, Attribute]:
    grid = -(-32 * tiles_of(layout, shape) // THREADS)
    return {
        **Shape((grid, 1, 1), (THREADS, 1, 1)).entries(),
        "rounding": StringAttr("fused"),
        **start_entries(arch),
    }


def pack_record(layout: LayoutAttr, shape: Sequence[int], target: TargetAttr) -> KernelAttr:
    """The record of `cuda.pack_blocks` for a layout of a weight of so many rows and bytes of a row."""
    own = {
        "version": integer(PackBlocksKernel.version),
        "determinism": StringAttr(PackBlocksKernel.determinism),
    }
    entries = _entries(read_layout(layout), shape, arch_named(target.arch.data))
    return KernelAttr(PackBlocksKernel.id, own | entries)


KERNELS = (PackBlocksKernel(),)
"""The kernel of this family."""
