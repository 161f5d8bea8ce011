"""Descriptors of the kernels that write at computed indices or look for the largest. No code generator is imported.

`codegen.py` turns their records into launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import (
    Each,
    Entry,
    OneOf,
    RecordCodec,
    Whole,
    integer,
    powers_of_two,
    read_integer,
    read_text,
)
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.loops.kernel import operand_reason
from aicf.backends.cuda.families.records import CudaKernel, integers, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

THREADS = 256
"""Of a block; a radix select has one for each bin of a digit's histogram."""
LOOKS = 8
"""Indices that a thread of a combining scatter reads at a time."""
TILE_BYTES = 32 << 10
"""Shared memory for the rows of one block of a combining scatter."""
_ELEMENTS = powers_of_two(1, TILE_BYTES // 4)
LAUNCH_US = 2.0
_PASSES = 4
"""How often a row is read to find its largest, on the average."""
_LOOKS_PER_US = 150_000
"""Of all blocks together. Measured on an H100: 3830 us for 65536 indices and 8192 tiles of a result of 256 MB."""
UNROLL = 8
"""Elements of a row that a thread reads together. Measured on an H100: 32 of each of 16384 rows of 4096 take 767 us so,
895 with four; 64 of each of 8 rows of 8 Mi take 527 with 132 blocks a row, 557 with half of them."""
KEPT_BYTES = 16
"""Of an element that a part of a row keeps: its order and its index, turned round."""
_PART = 8192
"""Fewest elements of a part of a row."""
_HIT_US = 0.8
"""Of an update that falls into a tile, after another. Measured on an H100: 27 ms for 32768 a tile."""
_FEW_ROWS, _LONG_LIST = 8, 256
"""Rows and updates of each, on the average, from which on sums under a mask are faster: 2 rows with 2,048 updates of
768 elements each are predicted to take 422 us as lists, and 5 us under a mask."""
ORDER = "the operand, then its updates ascending"
"""In which an element of a scatter is combined."""
IN_PLACE = ArrayAttr([integers((0, 0))])
"""The result of a scatter may lie on the operand: an element is read before it is written, by one block."""


def launch_entries(work: Workload, target: TargetAttr, *grids: tuple[int, int]) -> dict[str, Attribute]:
    """What all records here say: how the launches of an instruction run and start."""
    return {
        "grids": ArrayAttr([integers((*grid, 1)) for grid in grids]),
        "block": integers((THREADS, 1, 1)),
        "cluster": integers((1, 1, 1)),
        "shared_bytes": integer(0),
        "rounding": StringAttr(work.rounding),
        **start_entries(arch_named(target.arch.data)),
    }


class IndexedKernel(UndecidedKernel, CudaKernel[None]):
    """What the kernels here share: any operands of a type and size that is counted, and one record for each work."""

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return _size_reason(work)


def _size_reason(work: Workload) -> str | None:
    """Indices are counted in i32."""
    if any(prod(operand.shape) >= 1 << 31 for operand in (*work.operands, *work.results)):
        return "an operand has 2^31 elements or more"
    return operand_reason(work)


def long_lists_reason(work: Workload) -> str | None:
    """Why a sum under a mask is the better method, None if it is not: a list is added up by one thread a column."""
    operand, indices, _ = work.operands
    rows, count = operand.shape[0], indices.shape[0]
    if read_text(work.attrs, "mode") != "add" or operand.dtype not in ("f32", "f64"):
        return None
    if rows > _FEW_ROWS or count < _LONG_LIST * rows:
        return None
    return (
        f"{rows} rows get {count} updates, those of a row one after the other: sums under a mask are faster"
    )


class CombiningKernel(IndexedKernel):
    """What the scatters that combine share."""

    kinds = frozenset({"scatter_combine"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return super().legal(work, target) or long_lists_reason(work)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: updates of a row are combined as they come. Which sums are legal depends on the number of rows
        (`long_lists_reason`)."""
        return None if read_text(work.attrs, "mode") == "add" else ORDER


class LastUpdateKernel(IndexedKernel):
    """Clears, then takes the maximum of the numbers that name a row, atomically: no order matters."""

    id = "cuda.last_update"
    kinds = frozenset({"last_update"})

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: an atomic of four bytes costs a sector of 32."""
        count, rows = work.operands[0].shape[0], work.results[0].shape[0]
        moved = count * (32 + ELEMENT_BYTES[work.operands[0].dtype]) + 4 * rows
        return 2 * LAUNCH_US + moved / arch_named(target.arch.data).bandwidth_gbs / 1e3

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        count, rows = work.operands[0].shape[0], work.results[0].shape[0]
        return launch_entries(work, target, (-(-rows // THREADS), 1), (-(-count // THREADS), 1))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: whole numbers, of which the largest is exact."""
        return "none"


@dataclass(frozen=True)
class Tile:
    """What a block of a combining scatter has, and how many indices a thread reads at a time."""

    rows: Annotated[int, Entry(_ELEMENTS, "block_rows")]
    columns: Annotated[int, Entry(_ELEMENTS, "block_columns")]
    looks: Annotated[int, Entry(OneOf((LOOKS,)))] = LOOKS


TILE = RecordCodec(Tile)


class ScatterKernel(CombiningKernel):
    """Tiles of the result in shared memory; each looks at all indices and takes the updates of its rows in order."""

    id = "cuda.scatter"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: every block looks at all indices."""
        arch = arch_named(target.arch.data)
        operand, indices, updates = work.operands
        size = ELEMENT_BYTES[operand.dtype]
        moved = (2 * prod(operand.shape) + prod(updates.shape)) * size / arch.bandwidth_gbs / 1e3
        looked = prod(_tiles(work)) * indices.shape[0] / _LOOKS_PER_US
        hits = indices.shape[0] * min(1.0, _tile(work).rows / operand.shape[0])
        return LAUNCH_US + moved + looked + hits * _HIT_US

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        return {
            "mode": work.attrs["mode"],
            **TILE.entries(_tile(work)),
            "combination_order": StringAttr(ORDER),
            "may_alias": IN_PLACE,
            **launch_entries(work, target, _tiles(work)),
        }


def _tiles(work: Workload) -> tuple[int, int]:
    """Blocks over the rows and over the columns."""
    tile = _tile(work)
    return -(-work.operands[0].shape[0] // tile.rows), -(-prod(work.operands[0].shape[1:]) // tile.columns)


def _tile(work: Workload) -> Tile:
    """Rows and columns of a block: whole rows where they fit, and rows enough to fill shared memory."""
    rows, columns = work.operands[0].shape[0], prod(work.operands[0].shape[1:])
    elements = TILE_BYTES // max(4, ELEMENT_BYTES[work.operands[0].dtype])
    width = min(elements, 1 << max(0, columns - 1).bit_length())
    return Tile(min(elements // width, 1 << max(0, rows - 1).bit_length()), width)


@dataclass(frozen=True)
class Selection:
    """Elements that a thread reads together, and blocks that share a row, launch by launch."""

    unroll: Annotated[int, Entry(OneOf((UNROLL,)))]
    parts: Annotated[tuple[int, ...], Entry(Each(Whole(1)))]


SELECTION = RecordCodec(Selection)


class TopkKernel(IndexedKernel):
    """A block a row, or a part of it: a radix select with histograms in shared memory, then the rank of each of the k.

    Few long rows are cut in parts, and the best of all parts are a row again, until one part is left.
    """

    id = "cuda.topk"
    version = 2
    kinds = frozenset({"topk_indices"})

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        arch = arch_named(target.arch.data)
        rows, size, k = _row_sizes(work)
        parts = _parts(work, arch)
        moved = rows * size * ELEMENT_BYTES[work.operands[0].dtype] * _PASSES
        compared = rows * k * k / (THREADS * arch.multiprocessors * 1e3)
        launches = LAUNCH_US * len(parts)
        return launches + moved / (arch.bandwidth_gbs * _share(rows * parts[0], arch)) / 1e3 + compared

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        rows, _, k = _row_sizes(work)
        parts = _parts(work, arch_named(target.arch.data))
        return {
            "axis": work.attrs["axis"],
            "smallest": work.attrs["smallest"],
            **SELECTION.entries(Selection(UNROLL, parts)),
            "workspace_bytes": integer(KEPT_BYTES * rows * k * sum(parts)),
            **launch_entries(work, target, *((rows, each) for each in parts)),
        }

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: elements are compared, and nothing is combined."""
        return "none"


def _row_sizes(work: Workload) -> tuple[int, int, int]:
    """Rows, elements of one, and how many are wanted."""
    axis = read_integer(work.attrs, "axis")
    size, k = work.operands[0].shape[axis], work.results[0].shape[axis]
    return prod(work.operands[0].shape) // size, size, k


def _parts(work: Workload, arch: GpuArch) -> tuple[int, ...]:
    """Blocks that share a row, launch by launch: several where rows alone leave the device idle, at last one."""
    rows, size, k = _row_sizes(work)
    least = max(_PART, 4 * k)
    wanted = 1 if rows >= 2 * arch.multiprocessors else -(-8 * arch.multiprocessors // rows)
    parts = [max(1, min(wanted, size // least))]
    while parts[-1] > 1:
        parts.append(-(-parts[-1] * k // least))
    return tuple(parts)


def _share(blocks: int, arch: GpuArch) -> float:
    """Part of the device that so many blocks keep busy."""
    return min(1.0, blocks / (4 * arch.multiprocessors))


KERNELS = (LastUpdateKernel(), ScatterKernel(), TopkKernel())
"""The kernels of this family."""
