"""The kernel that packs weights in panels for products. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import (
    OneOf,
    Record,
    Whole,
    illegal,
    integer,
    read_entry,
    read_integer,
    read_text,
)
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.pack.schedule import packed_bytes
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.gemm.units import DOT_LANES, QUADS_FEATURE, SHIFT
from aicf.backends.cpu.families.legality import level_of
from aicf.backends.cpu.families.vectors import legal_lanes
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

PACKED_B = "packed_b"
"""Layout of a weight for the GEMM microkernel: ``[ceil(n / nr)][k][nr]``, zero padded; with `pairs` an element is two
terms of k that lie `pairs` apart in the weight, with `quads`, which is 1, four neighbouring ones. With `shift` a panel
starts with a row of ``-shift`` times the sums of its columns."""


_UNIT_ENTRIES = ("pairs", "quads", "shift")
"""What a layout says of units, where they are more than elements."""


class PackKernel(CpuKernel[int]):
    """Packs a weight for the GEMM microkernel, vectors of so many elements at a time; only ever asked for through
    `Kernel.prepare`.

    Version 3 packs pairs of short integers, version 4 quads of i8 and pairs of bf16.
    """

    id = "cpu.pack"
    version = 4
    kinds = frozenset({"pack"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, operand = work.results[0].layout, work.operands[0]
        if layout is None or layout.layout.data != PACKED_B:
            return "weights are packed where a product asks for it, in @prepare"
        if "shift" in layout.parameters_.data and QUADS_FEATURE not in level_of(target).features:
            return f"panels for a shifted left factor need {QUADS_FEATURE}, which the target is without"
        return panels_reason(layout, operand.shape, operand.dtype)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: two bytes a cycle; run once."""
        operand = work.operands[0]
        return prod(operand.shape) * ELEMENT_BYTES[operand.dtype] / 2 / NOMINAL_GHZ / 1000

    def schedule(self, work: Workload, target: TargetAttr) -> int:
        """See `Kernel`: elements of a vector."""
        layout = work.results[0].layout
        assert layout is not None, "the result of legal work has a layout"
        return pack_lanes(layout, work.operands[0].dtype, level_of(target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        assert work.results[0].layout is not None, "the result of legal work has a layout"
        return _pack_entries(work.results[0].layout, schedule)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> int:
        layout = work.results[0].layout
        assert layout is not None, "the result of legal work has a layout"
        if "quads" in layout.parameters_.data:
            return read_entry(record, "lanes", OneOf(DOT_LANES))
        return read_entry(record, "lanes", legal_lanes(work.operands[0].dtype))


def pack_lanes(layout: LayoutAttr, dtype: str, level: CpuLevel) -> int:
    """Elements of a vector that a weight of type `dtype` is packed with: of its own, or quads."""
    return level.lanes("i32" if "quads" in layout.parameters_.data else dtype)


def pack_record(layout: LayoutAttr, lanes: int) -> KernelAttr:
    """The record of `cpu.pack` that makes a layout."""
    own = {"version": integer(PackKernel.version), "determinism": StringAttr(PackKernel.determinism)}
    return KernelAttr(PackKernel.id, own | _pack_entries(layout, lanes))


def _pack_entries(layout: LayoutAttr, lanes: int) -> dict[str, Attribute]:
    """Panels that hold another type than the weight say which, those of units how these are made."""
    given = layout.parameters_.data
    panel = {name: given[name] for name in ("nr", "k_dim", "element", *_UNIT_ENTRIES) if name in given}
    return {"lanes": integer(lanes), "threads": integer(1), **panel}


def panels_reason(layout: LayoutAttr, shape: Sequence[int], dtype: str) -> str | None:
    """Why a layout is not that of a weight in panels; None if it is.

    Args:
        shape, dtype: Of the weight: a matrix, or more dimensions of which all after the first are one.
    """
    given = layout.parameters_.data
    k_dim: int = read_entry(given, "k_dim", OneOf((0, 1)))
    nr: int = read_entry(given, "nr", Whole(1))
    sizes = (shape[0], prod(shape[1:]))
    k, n = sizes[k_dim], sizes[1 - k_dim]
    pairs: int = read_entry(given, "pairs", Whole(1, max(1, k))) if "pairs" in given else 0
    element = read_text(given, "element") if "element" in given else dtype
    if element not in ELEMENT_BYTES:
        return f"its layout's {illegal('element', element, ', '.join(ELEMENT_BYTES))}"
    if "quads" in given:
        return _quads_reason(layout, k, n, dtype)
    steps = k
    if pairs:
        # Two terms that lie `pairs` apart are one unit: those of a stretch of twice as many.
        stretches, rest = divmod(k, 2 * pairs)
        steps = stretches * pairs + min(rest, pairs)
    unit = ELEMENT_BYTES[element] * (2 if pairs else 1)
    return _bytes_reason(layout, packed_bytes("i8", steps, n, nr) * unit)


def _quads_reason(layout: LayoutAttr, k: int, n: int, dtype: str) -> str | None:
    """The same of panels of quads of a weight with `k` rows and `n` columns."""
    given = layout.parameters_.data
    nr: int = read_entry(given, "nr", Whole(1))
    read_entry(given, "quads", OneOf((1,)))
    if dtype != "i8" or "pairs" in given or "element" in given:
        return "quads are of a weight of i8, and neither pairs nor of another element"
    if "shift" in given:
        read_entry(given, "shift", OneOf((SHIFT,)))
    return _bytes_reason(layout, packed_bytes("i32", -(-k // 4) + ("shift" in given), n, nr))


def _bytes_reason(layout: LayoutAttr, expected: int) -> str | None:
    """Why a layout does not take so many bytes; None if it does."""
    stated = read_integer(layout.parameters_.data, "bytes")
    return None if stated == expected else f"its layout's {illegal('bytes', stated, expected)}"


KERNELS = (PackKernel(),)
"""The kernel of this family."""
