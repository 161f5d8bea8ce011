"""The update of many tensors by one instruction: one set of loops for each part. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.multi_tensor import (
    overwritten,
    program_code,
    same_type,
    update_of_work,
    update_reason,
)
from aicf.backends.common.record import Entry, Record, RecordCodec, illegal, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import code_reason, level_of, threads_of, threads_reason
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us
from aicf.backends.cpu.families.records import loop_record, pairs, read_loops
from aicf.backends.cpu.target import CpuLevel
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import Update, scalar_phase
from aicf.dialects.kinds import UPDATES

Subnormals = Literal["zero", "keep"]
ZERO: Subnormals = "zero"
KEEP: Subnormals = "keep"
"""What becomes of numbers below the smallest normal one, read or written; `cpu/codegen/subnormals.py` says why."""


@dataclass(frozen=True)
class Updates:
    """The loops of each part, and what becomes of subnormal numbers."""

    parts: Sequence[LoopSpec]
    subnormals: Annotated[Subnormals, Entry()]


_CODEC = RecordCodec(Updates)


class MultiTensorKernel(CpuKernel[Updates]):
    """Loops over the elements of one part after the other; threads share those of each part that has enough.

    Version 2 says what becomes of subnormal numbers.
    """

    id = "cpu.multi_tensor"
    version = 2
    kinds = UPDATES

    def flushes_subnormals(self, record: Record) -> bool:
        return read_subnormals(record) != KEEP

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := update_reason(work)) is not None:
            return reason
        assert work.code is not None
        if scalar_phase(work.code) is not None:
            return "numbers for all parts are instructions of their own on cpu: threads do not wait inside of one"
        return code_reason(work.code)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return sum(cost_us(nest, spec) for nest, spec in _decide(work, target))

    def schedule(self, work: Workload, target: TargetAttr) -> Updates:
        parts = [spec for _, spec in _decide(work, target)]
        return Updates(parts, ZERO if can_flush(level_of(target)) else KEEP)

    def record_of(self, work: Workload, target: TargetAttr, schedule: Updates) -> dict[str, Attribute]:
        assert work.code is not None
        parts = zip(_nests(work), schedule.parts, strict=True)
        aliases = same_type(overwritten(work.code, update_of_work(work)), work)
        return {
            "threads": integer(max(spec.threads for spec in schedule.parts)),
            **_CODEC.entries(schedule),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in parts]),
            "may_alias": pairs(aliases),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Updates:
        return Updates(read_loops(record, _nests(work)), read_subnormals(record))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Updates) -> str | None:
        if schedule.subnormals == ZERO and not can_flush(level_of(target)):
            return f"its {illegal('subnormals', ZERO, KEEP)} on {target.arch.data}"
        reasons = (threads_reason(spec.threads, target) for spec in schedule.parts)
        return next((f"in its 'parts', {reason}" for reason in reasons if reason is not None), None)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


def _nests(work: Workload) -> list[LoopNest]:
    assert work.code is not None
    dtypes = [operand.dtype for operand in work.operands], [result.dtype for result in work.results]
    return part_nests(work.code, update_of_work(work), *dtypes)


def _decide(work: Workload, target: TargetAttr) -> list[tuple[LoopNest, LoopSpec]]:
    level, threads = level_of(target), threads_of(target)
    return [(nest, choose(nest, level, threads, rounding=work.rounding)) for nest in _nests(work)]


def can_flush(level: CpuLevel) -> bool:
    """Whether code of a level can take subnormal numbers for 0."""
    return level.architecture == "x86_64"


def read_subnormals(record: Record) -> Subnormals:
    """What becomes of subnormal numbers. Raises RecordError if the record does not say."""
    return _CODEC.values(record)["subnormals"]


def part_nests(
    code: KernelOp, update: Update, dtypes_in: Sequence[str], dtypes_out: Sequence[str]
) -> list[LoopNest]:
    """The loops of each part; their accesses are the operands of rank 0, then those of the part, then its results."""
    nests: list[LoopNest] = []
    for part in update.parts:
        kernel = program_code(code, update, part.program, part.elements, apart=False)
        strides = [()] * len(update.scalars) + [(1,)] * (len(part.operands) + len(part.results))
        read = [dtypes_in[number] for number in (*update.scalars, *part.operands)]
        nests.append(nest_of(kernel, strides, [*read, *(dtypes_out[number] for number in part.results)]))
    return nests


KERNELS = (MultiTensorKernel(),)
"""The kernels of this family."""
