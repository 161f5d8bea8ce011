"""The kernel that writes rows into a state, as a step of a decoder does. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.copy import copy_nest
from aicf.backends.common.loop_nest import LoopNest, Strided
from aicf.backends.common.record import Record, illegal, integer
from aicf.backends.common.workload import Workload
from aicf.backends.common.write_row import operand_numbers, written_in
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import level_of, strided
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us
from aicf.backends.cpu.families.records import loop_record, pairs, read_loops
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import SCALAR_PROGRAMS


@dataclass(frozen=True)
class WriteRow:
    """Rows that are written along the dimension `axis` of the result, which else is the old state. `index` has one
    number, or one for each of the leading dimensions that it has."""

    row: Strided
    index: Strided
    old: Strided
    result: Strided
    axis: int

    def copies(self) -> tuple[LoopNest, LoopNest]:
        """Loops that copy the old state to the result, and one row to its place."""
        return copy_nest(self.old, self.result), copy_nest(self._slice(self.row), self._slice(self.result))

    def _slice(self, whole: Strided) -> Strided:
        """What one index names."""
        kept = [dim for dim in range(len(self.index.shape), len(self.result.shape)) if dim != self.axis]
        return Strided(
            tuple(self.result.shape[dim] for dim in kept),
            tuple(whole.strides[dim] for dim in kept),
            whole.dtype,
        )


class WriteRowKernel(CpuKernel[Sequence[LoopSpec]]):
    """Rows into a state. In place it touches nothing else; elsewhere it copies the state first."""

    id = "cpu.write_row"
    simplicity = 2
    kinds = SCALAR_PROGRAMS

    def is_for(self, work: Workload) -> bool:
        return super().is_for(work) and written_in(work.body) is not None

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return "it does more than write rows" if written_in(work.body) is None else None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: what it writes into is copied unless it is a state, which is mostly overwritten in place."""
        op, write = written_in(work.body), write_of(work)
        assert op is not None
        copy, row = (cost_us(nest, choose(nest, level_of(target), 1)) for nest in write.copies())
        is_state = work.operands[operand_numbers(op)[2]].role == "state"
        count = prod(write.index.shape) * write.row.shape[write.axis]
        return (0.0 if is_state else copy) + count * row

    def schedule(self, work: Workload, target: TargetAttr) -> Sequence[LoopSpec]:
        return [choose(nest, level_of(target), 1) for nest in write_of(work).copies()]

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Sequence[LoopSpec]
    ) -> dict[str, Attribute]:
        op, write = written_in(work.body), write_of(work)
        assert op is not None
        numbers, parts = operand_numbers(op), zip(write.copies(), schedule, strict=True)
        return {
            "axis": integer(write.axis),
            "operands": ArrayAttr([integer(number) for number in numbers]),
            "threads": integer(1),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in parts]),
            "combination_order": StringAttr("none"),
            "may_alias": pairs([(0, numbers[2])]),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Sequence[LoopSpec]:
        return read_loops(record, write_of(work).copies())

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Sequence[LoopSpec]) -> str | None:
        """See `Kernel`: rows are written after the state is copied."""
        shared = next((spec.threads for spec in schedule if spec.threads != 1), None)
        return None if shared is None else f"in its 'parts', its {illegal('threads', shared, 1)}"

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


def write_of(work: Workload) -> WriteRow:
    """What legal work writes."""
    op = written_in(work.body)
    assert op is not None
    row, index, old = (strided(work.operands[number]) for number in operand_numbers(op))
    return WriteRow(row, index, old, strided(work.results[0]), op.axis.value.data)


KERNELS = (WriteRowKernel(),)
"""The kernel of this family."""
