"""The kernel that combines updates into rows at computed indices. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.copy import copy_nest
from aicf.backends.common.loop_nest import LoopNest, Strided
from aicf.backends.common.record import Record, illegal, integer, read_text
from aicf.backends.common.scatter import Scatter
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import (
    level_of,
    strided,
)
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us
from aicf.backends.cpu.families.records import loop_record, read_loops
from aicf.backends.cpu.target import ELEMENT_BYTES, HALVES, REGISTERS
from aicf.dialects.emit_types import TargetAttr

_ORDER = "the operand, then its updates ascending"
"""In which an element is combined."""


class ScatterKernel(CpuKernel[Sequence[LoopSpec]]):
    """A copy, then the updates in order, each combined into its row."""

    id = "cpu.scatter"
    kinds = frozenset({"scatter_combine"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        copy, row, *back = scatter_parts(_scatter(work))
        level = level_of(target)
        rows = work.operands[1].shape[0] * cost_us(row, choose(row, level, 1))
        return sum(cost_us(nest, choose(nest, level, 1)) for nest in (copy, *back)) + rows

    def schedule(self, work: Workload, target: TargetAttr) -> Sequence[LoopSpec]:
        return [choose(nest, level_of(target), 1) for nest in scatter_parts(_scatter(work))]

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Sequence[LoopSpec]
    ) -> dict[str, Attribute]:
        scatter = _scatter(work)
        parts = zip(scatter_parts(scatter), schedule, strict=True)
        sums = summed_apart(scatter)
        return {
            "mode": StringAttr(scatter.mode),
            "threads": integer(1),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in parts]),
            "combination_order": StringAttr(_ORDER),
            **({} if sums is None else {"workspace_bytes": integer(_bytes_of(sums.result))}),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Sequence[LoopSpec]:
        return read_loops(record, scatter_parts(_scatter(work)))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Sequence[LoopSpec]) -> str | None:
        """See `Kernel`: updates of one row may follow each other, so one thread does all."""
        shared = next((spec.threads for spec in schedule if spec.threads != 1), None)
        return None if shared is None else f"in its 'parts', its {illegal('threads', shared, 1)}"

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: one thread takes the updates as they come."""
        return _ORDER


def summed_apart(scatter: Scatter) -> Scatter | None:
    """The scatter into f32 in workspace, where sums and products of f16 and bf16 wait until all updates are in."""
    apart = scatter.mode in ("add", "mul") and scatter.result.dtype in HALVES
    return scatter.summed_in(REGISTERS[scatter.result.dtype]) if apart else None


def scatter_parts(scatter: Scatter) -> list[LoopNest]:
    """The loops: the copy, one update, and the way back from the workspace if there is one."""
    if (sums := summed_apart(scatter)) is None:
        return [scatter.copy(), scatter.row()]
    return [sums.copy(), sums.row(), copy_nest(sums.result, scatter.result)]


def _bytes_of(buffer: Strided) -> int:
    return prod(buffer.shape) * ELEMENT_BYTES[buffer.dtype]


def _scatter(work: Workload) -> Scatter:
    operands = (strided(operand) for operand in (*work.operands, *work.results))
    return Scatter(*operands, mode=read_text(work.attrs, "mode"))


KERNELS = (ScatterKernel(),)
"""The kernel of this family."""
