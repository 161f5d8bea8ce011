"""Descriptor of the CPU kernel that runs all steps of an LSTM. No code generator is imported.

`recurrent_code.py` turns its records into code.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.gemm_kernels import PACKED_B, pack_record
from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ
from aicf.backends.cpu.legality import DETERMINISM, VERSION, level_of
from aicf.backends.cpu.records import integer
from aicf.backends.cpu.target import ELEMENT_BYTES
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

GATES = 4
"""Of an LSTM: input, output, forget and cell, in this order."""
_GATE_CYCLES = 120.0
"""Of a vector of each of the gates and the two new states: five functions by exp and the loads and stores."""
_PACK_CYCLES = 2.0
"""Of an element of the weight that is moved to where the steps read it."""


@dataclass(frozen=True)
class LstmSizes:
    """Sizes of an LSTM and how its sums are tiled.

    Args:
        rows: Rows of the batch whose sums are in registers at a time.
        split: Sums over K that an element has, for the latency of a chain.
        ahead: Whether the weight was packed when it was bound, a panel for each vector of each gate; else it is packed
            into workspace, the gates of a vector of states side by side.
    """

    steps: int
    batch: int
    hidden: int
    lanes: int
    rows: int
    split: int
    ahead: bool

    @property
    def blocks(self) -> int:
        """Vectors of a row of states."""
        return -(-self.hidden // self.lanes)

    @property
    def packed(self) -> int:
        """Elements of the weight as the steps read it."""
        return self.blocks * self.hidden * GATES * self.lanes

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements of the packed weight from one vector of states, one k, and one gate to the next."""
        if self.ahead:
            return self.hidden * self.lanes, self.lanes, self.packed // GATES
        return self.hidden * GATES * self.lanes, GATES * self.lanes, self.lanes


def _sizes(work: Work, target: TargetAttr) -> LstmSizes:
    """As many rows as registers hold sums of. A weight whose gates are whole vectors is packed ahead."""
    level, weight, (result,) = level_of(target), work.operands[1], work.results
    lanes = level.lanes(result.dtype)
    _, steps, batch, hidden = result.shape
    most = max(1, (level.registers - GATES - 1) // GATES)
    rows = min(batch, most, 4)
    split = 2 if rows == 1 and hidden > 1 and level.registers > 2 * GATES + GATES else 1
    is_weight = weight.is_weight and 0 not in weight.strides
    return LstmSizes(steps, batch, hidden, lanes, rows, split, is_weight and hidden % lanes == 0)


@dataclass(frozen=True)
class LstmKernel:
    """All steps in one loop over a packed weight; states are read where the step before wrote them."""

    id: str = "cpu.lstm"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"lstm"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        for what, operand in (
            ("x", work.operands[0]),
            ("first", work.operands[2]),
            ("result", work.results[0]),
        ):
            if operand.strides[-1] != 1 and operand.shape[-1] > 1:
                return f"rows of {what} are not contiguous, its strides are {list(operand.strides)}"
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: the multiply-adds of a step, two vectors a cycle, its gates, and the packing once."""
        sizes = _sizes(work, target)
        products = sizes.hidden * GATES * (0.5 if level_of(target).has_fma else 1.0)
        step = sizes.batch * sizes.blocks * (products + _GATE_CYCLES)
        packing = 0.0 if sizes.ahead else sizes.packed * _PACK_CYCLES
        return (sizes.steps * step + packing) / NOMINAL_GHZ / 1000

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        sizes = _sizes(work, target)
        order = (
            "ascending k"
            if sizes.split == 1
            else f"ascending k in {sizes.split} strided sums, added pairwise"
        )
        return {
            "reverse": work.attrs["reverse"],
            "lanes": integer(sizes.lanes),
            "tile_rows": integer(sizes.rows),
            "k_split": integer(sizes.split),
            "b_source": StringAttr("packed" if sizes.ahead else "workspace"),
            "threads": integer(1),
            "combination_order": StringAttr(order),
            **_packing(sizes, work.results[0].dtype),
        }

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`: the record of `cpu.pack`."""
        return pack_record(layout, _sizes(work, target).lanes)


def _packing(sizes: LstmSizes, dtype: str) -> dict[str, Attribute]:
    """What the record says of the packed weight: its layout, or the workspace that it takes."""
    bytes_ = sizes.packed * ELEMENT_BYTES[dtype]
    if not sizes.ahead:
        return {"workspace_bytes": integer(bytes_)}
    entries = {"bytes": integer(bytes_), "k_dim": integer(1), "nr": integer(sizes.lanes)}
    return {"layouts": ArrayAttr([UnitAttr(), LayoutAttr(PACKED_B, entries), UnitAttr()])}


KERNELS = (LstmKernel(),)
"""The kernels of this family."""
