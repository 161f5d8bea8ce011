"""The kernels that move elements. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.copy import moves_of_work
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.common.record import Record, integer, read_parts
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.loops.choice import choose
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.kernel import (
    operand_reason,
    read_spec,
    spec_record,
)
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import TargetAttr


@dataclass(frozen=True)
class MoveKernel(CudaKernel[Sequence[GeneratedSpec]]):
    """Moves elements: a strided copy, or operands side by side."""

    id: str
    kinds: frozenset[str]

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := operand_reason(work)) is not None:
            return reason
        if len(work.results) != 1 or moves_of_work(work) is None:
            return "it does more than move elements to one result"
        return None

    def _nests(self, work: Workload) -> list[LoopNest]:
        found = moves_of_work(work)
        assert found is not None, "loops are asked for of legal work"
        return [move.nest for move in found]

    def schedule(self, work: Workload, target: TargetAttr) -> Sequence[GeneratedSpec]:
        found = moves_of_work(work)
        assert found is not None, "loops are asked for of legal work"
        arch, start = arch_named(target.arch.data), work.results[0].offset
        specs: list[GeneratedSpec] = []
        for move in found:
            sources = [] if move.operand is None else [work.operands[move.operand].offset]
            specs.append(choose(move.nest, [*sources, start + move.offset], arch))
        return specs

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        arch = arch_named(target.arch.data)
        parts = zip(self._nests(work), self.schedule(work, target), strict=True)
        return sum(cost_us(nest, spec, arch) for nest, spec in parts)

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Sequence[GeneratedSpec]
    ) -> dict[str, Attribute]:
        parts = zip(self._nests(work), schedule, strict=True)
        return {
            "axis": work.attrs.get("axis", integer(0)),
            "parts": ArrayAttr([DictionaryAttr(spec_record(nest, spec)) for nest, spec in parts]),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch_named(target.arch.data)),
        }

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Sequence[GeneratedSpec]:
        return [read_spec({**record, **part}) for part in read_parts(record, "parts", len(self._nests(work)))]

    def schedule_reason(
        self, work: Workload, target: TargetAttr, schedule: Sequence[GeneratedSpec]
    ) -> str | None:
        reasons = (spec.problem(nest) for nest, spec in zip(self._nests(work), schedule, strict=True))
        return next((f"in its 'parts', {reason}" for reason in reasons if reason is not None), None)


def read_moves(record: Record) -> list[Record]:
    """The records of the moves of a copy or concatenation. Raises RecordError if there are none."""
    common = {key: entry for key, entry in record.items() if key != "parts"}
    return [{**common, **part} for part in read_parts(record, "parts")]


KERNELS = (
    MoveKernel("cuda.copy", frozenset({"copy"})),
    MoveKernel("cuda.concat", frozenset({"concat"})),
)
"""The kernels of this family."""
