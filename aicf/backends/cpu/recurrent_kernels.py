"""Descriptor of the CPU kernel that runs all steps of an LSTM. No code generator is imported.

`recurrent_code.py` turns its records into code.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ
from aicf.backends.cpu.legality import DETERMINISM, VERSION, PlainOperands, level_of
from aicf.backends.cpu.records import integer
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.dialects.emit_types import TargetAttr

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
    """

    steps: int
    batch: int
    hidden: int
    lanes: int
    rows: int
    split: int

    @property
    def blocks(self) -> int:
        """Vectors of a row of states."""
        return -(-self.hidden // self.lanes)

    @property
    def packed(self) -> int:
        """Elements of the weight as the steps read it."""
        return self.blocks * self.hidden * GATES * self.lanes


def lstm_sizes(shape: tuple[int, ...], dtype: str, level: CpuLevel) -> LstmSizes:
    """For the states' shape, [2, S, B, H]: as many rows as registers hold sums of."""
    _, steps, batch, hidden = shape
    most = max(1, (level.registers - GATES - 1) // GATES)
    rows = min(batch, most, 4)
    split = 2 if rows == 1 and hidden > 1 and level.registers > 2 * GATES + GATES else 1
    return LstmSizes(steps, batch, hidden, level.lanes(dtype), rows, split)


@dataclass(frozen=True)
class LstmKernel(PlainOperands):
    """All steps in one loop: the weight is packed once, states are read where the step before wrote them."""

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
        return (sizes.steps * step + sizes.packed * _PACK_CYCLES) / NOMINAL_GHZ / 1000

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
            "threads": integer(1),
            "workspace_bytes": integer(sizes.packed * ELEMENT_BYTES[work.results[0].dtype]),
            "combination_order": StringAttr(order),
        }


def _sizes(work: Work, target: TargetAttr) -> LstmSizes:
    result = work.results[0]
    return lstm_sizes(result.shape, result.dtype, level_of(target))


KERNELS = (LstmKernel(),)
"""The kernels of this family."""
