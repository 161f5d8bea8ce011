"""The kernels that move elements. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute

from aicf.backends.common.copy import moves_of_work
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.common.record import Record, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import (
    level_of,
    threads_of,
    threads_reason,
)
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us
from aicf.backends.cpu.families.records import loop_record, read_loops
from aicf.dialects.emit_types import TargetAttr


@dataclass(frozen=True)
class MoveKernel(CpuKernel[Sequence[LoopSpec]]):
    """Moves elements: a strided copy, or operands side by side."""

    id: str
    kinds: frozenset[str]
    reads_body: bool = True

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if len(work.results) != 1 or moves_of_work(work) is None:
            return "it does more than move elements to one result"
        return None

    def _nests(self, work: Workload) -> list[LoopNest]:
        found = moves_of_work(work)
        assert found is not None, "loops are asked for of legal work"
        return [move.nest for move in found]

    def _decide(self, work: Workload, target: TargetAttr) -> list[tuple[LoopNest, LoopSpec]]:
        level, threads = level_of(target), threads_of(target)
        return [(nest, choose(nest, level, threads)) for nest in self._nests(work)]

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return sum(cost_us(nest, spec) for nest, spec in self._decide(work, target))

    def schedule(self, work: Workload, target: TargetAttr) -> Sequence[LoopSpec]:
        return [spec for _, spec in self._decide(work, target)]

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Sequence[LoopSpec]
    ) -> dict[str, Attribute]:
        parts = zip(self._nests(work), schedule, strict=True)
        return {
            "axis": work.attrs.get("axis", integer(0)),
            "threads": integer(max(spec.threads for spec in schedule)),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in parts]),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Sequence[LoopSpec]:
        return read_loops(record, self._nests(work))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Sequence[LoopSpec]) -> str | None:
        reasons = (threads_reason(spec.threads, target) for spec in schedule)
        return next((f"in its 'parts', {reason}" for reason in reasons if reason is not None), None)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


KERNELS = (
    MoveKernel("cpu.copy", frozenset({"copy"})),
    MoveKernel("cpu.concat", frozenset({"concat"})),
)
"""The kernels of this family."""
