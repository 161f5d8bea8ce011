"""Descriptor of the CPU kernel that runs all steps of an LSTM. No code generator is imported.

`codegen.py` turns its records into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import (
    Entry,
    OneOf,
    Record,
    RecordCodec,
    RecordError,
    Whole,
    illegal,
    integer,
    read_entry,
)
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.pack.kernel import PACKED_B, pack_record
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ
from aicf.backends.cpu.families.legality import level_of
from aicf.backends.cpu.families.vectors import VECTOR_LANES, lanes_reason
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
        lanes: Elements of a vector.
        rows: Rows of the batch whose sums are in registers at a time.
        split: Sums over K that an element has, for the latency of a chain.
        ahead: Whether the weight was packed when it was bound, a panel for each vector of each gate; else it is packed
            into workspace, the gates of a vector of states side by side.
    """

    steps: int
    batch: int
    hidden: int
    lanes: Annotated[int, Entry(VECTOR_LANES)]
    rows: Annotated[int, Entry(Whole(1, 4), "tile_rows")]
    split: Annotated[int, Entry(OneOf((1, 2)), "k_split")]
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


def _sizes(work: Workload, target: TargetAttr) -> LstmSizes:
    """As many rows as registers hold sums of. A weight whose gates are whole vectors is packed ahead."""
    level, weight, (result,) = level_of(target), work.operands[1], work.results
    lanes = level.lanes(result.dtype)
    _, steps, batch, hidden = result.shape
    most = max(1, (level.registers - GATES - 1) // GATES)
    rows = min(batch, most, 4)
    split = 2 if rows == 1 and hidden > 1 and level.registers > 2 * GATES + GATES else 1
    is_weight = weight.is_weight and 0 not in weight.strides
    return LstmSizes(steps, batch, hidden, lanes, rows, split, is_weight and hidden % lanes == 0)


_CODEC = RecordCodec(LstmSizes)
_SOURCES = OneOf(("packed", "workspace"))


def read_sizes(record: Record, states: Sequence[int]) -> LstmSizes:
    """The sizes of an LSTM whose result has shape `states`, tiled as a record says. Raises RecordError if it cannot
    be."""
    steps, batch, hidden = states[1:]
    sizes = LstmSizes(
        steps,
        batch,
        hidden,
        **_CODEC.values(record),
        ahead=read_entry(record, "b_source", _SOURCES) == "packed",
    )
    if sizes.rows > max(1, batch):
        raise RecordError(f"its {illegal('tile_rows', sizes.rows, Whole(1, batch))}")
    if sizes.split > max(1, hidden):
        raise RecordError(f"its {illegal('k_split', sizes.split, 1)}")
    return sizes


class LstmKernel(CpuKernel[LstmSizes]):
    """All steps in one loop over a packed weight; states are read where the step before wrote them."""

    id = "cpu.lstm"
    kinds = frozenset({"lstm"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        for what, operand in (
            ("x", work.operands[0]),
            ("first", work.operands[2]),
            ("result", work.results[0]),
        ):
            if operand.strides[-1] != 1 and operand.shape[-1] > 1:
                return f"rows of {what} are not contiguous, its strides are {list(operand.strides)}"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: the multiply-adds of a step, two vectors a cycle, its gates, and the packing once."""
        sizes = _sizes(work, target)
        products = sizes.hidden * GATES * (0.5 if level_of(target).has_fma else 1.0)
        step = sizes.batch * sizes.blocks * (products + _GATE_CYCLES)
        packing = 0.0 if sizes.ahead else sizes.packed * _PACK_CYCLES
        return (sizes.steps * step + packing) / NOMINAL_GHZ / 1000

    def schedule(self, work: Workload, target: TargetAttr) -> LstmSizes:
        return _sizes(work, target)

    def record_of(self, work: Workload, target: TargetAttr, schedule: LstmSizes) -> dict[str, Attribute]:
        order = (
            "ascending k"
            if schedule.split == 1
            else f"ascending k in {schedule.split} strided sums, added pairwise"
        )
        return {
            "reverse": work.attrs["reverse"],
            **_CODEC.entries(schedule),
            "b_source": StringAttr("packed" if schedule.ahead else "workspace"),
            "threads": integer(1),
            "combination_order": StringAttr(order),
            **_packing(schedule, work.results[0].dtype),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> LstmSizes:
        sizes = read_sizes(record, work.results[0].shape)
        if (reason := lanes_reason(sizes.lanes, work.results[0].dtype)) is not None:
            raise RecordError(reason)
        if sizes.ahead and sizes.hidden % sizes.lanes:
            raise RecordError(
                f"its {illegal('b_source', 'packed', 'workspace')}: a gate is not whole vectors"
            )
        return sizes

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cpu.pack`."""
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
