"""The weight of Winograd's products: its layout, and the descriptor of the kernel that transforms it.

No code generator is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ
from aicf.backends.cpu.legality import DETERMINISM, VERSION, PlainOperands
from aicf.backends.cpu.records import get_int, integer
from aicf.backends.cpu.target import CpuLevel
from aicf.backends.cpu.winograd_spec import WinogradSpec
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

WINOGRAD_WEIGHT = "winograd_weight"
"""Layout of a weight: ``[element of the transformed tile][ceil(outputs / nr)][channels][nr]``, zero padded."""


def winograd_layout(spec: WinogradSpec) -> LayoutAttr:
    """The layout that the products of a spec read."""
    entries = {"bytes": spec.weight_bytes, "nr": spec.nr, "output_tile": spec.tile}
    return LayoutAttr(WINOGRAD_WEIGHT, {name: integer(value) for name, value in entries.items()})


def has_layout(layout: LayoutAttr, spec: WinogradSpec) -> bool:
    """Whether a weight with a layout is the one that the products of a spec read."""
    return layout == winograd_layout(spec)


@dataclass(frozen=True)
class WinogradPackKernel(PlainOperands):
    """Transforms and packs a weight for Winograd's products; only ever asked for through `ConvKernel.prepare`."""

    id: str = "cpu.pack_winograd"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"pack"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        return "weights are transformed where a convolution asks for it, in @prepare"

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: some 60 cycles for each window; run once."""
        return prod(work.operands[0].shape[:2]) * 60 / NOMINAL_GHZ / 1000

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """Its record comes from `ConvKernel.prepare`, which knows the tile."""
        raise PlanError(f"kernel '{self.id}' is recorded by the kernel that asks for the layout")


def winograd_pack_record(layout: LayoutAttr, level: CpuLevel) -> KernelAttr:
    """The record of `cpu.pack_winograd` that makes a layout; windows are transformed in f64."""
    given = layout.parameters_.data
    entries: dict[str, Attribute] = {
        "version": integer(WinogradPackKernel.version),
        "determinism": StringAttr(DETERMINISM),
        "lanes": integer(level.lanes("f64")),
        "threads": integer(1),
        "nr": integer(get_int(given, "nr")),
        "output_tile": integer(get_int(given, "output_tile")),
    }
    return KernelAttr(WinogradPackKernel.id, entries)
