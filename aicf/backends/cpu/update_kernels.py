"""The update of many tensors by one instruction: one set of loops for each part. Imports no code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import KernelDescriptor, Work
from aicf.backends.cpu.legality import (
    DETERMINISM,
    PlainOperands,
    code_reason,
    level_of,
    threads_of,
)
from aicf.backends.cpu.loop_spec import LoopSpec, choose, cost_us
from aicf.backends.cpu.records import integer, loop_record, one_of, pairs
from aicf.backends.cpu.target import CpuLevel
from aicf.backends.nests import LoopNest, nest_of
from aicf.backends.updates import KINDS, overwritten, program_code, same_type, update_of_work, update_reason
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import Update, scalar_phase

ZERO, KEEP = "zero", "keep"
"""What becomes of numbers below the smallest normal one, read or written; `subnormals.py` says why."""


@dataclass(frozen=True)
class MultiTensorKernel(PlainOperands):
    """Loops over the elements of one part after the other; threads share those of each part that has enough.

    Version 2 says what becomes of subnormal numbers.
    """

    id: str = "cpu.multi_tensor"
    version: int = 2
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = KINDS

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := update_reason(work)) is not None:
            return reason
        assert work.code is not None
        if scalar_phase(work.code) is not None:
            return "numbers for all parts are instructions of their own on cpu: threads do not wait inside of one"
        return code_reason(work.code)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return sum(cost_us(nest, spec) for nest, spec in _decide(work, target))

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        assert work.code is not None
        decided = _decide(work, target)
        aliases = same_type(overwritten(work.code, update_of_work(work)), work)
        return {
            "threads": integer(max(spec.threads for _, spec in decided)),
            "subnormals": StringAttr(ZERO if can_flush(level_of(target)) else KEEP),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in decided]),
            "may_alias": pairs(aliases),
        }

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: nothing is combined."""
        return "none"


def _decide(work: Work, target: TargetAttr) -> list[tuple[LoopNest, LoopSpec]]:
    assert work.code is not None
    dtypes = [operand.dtype for operand in work.operands], [result.dtype for result in work.results]
    nests = part_nests(work.code, update_of_work(work), *dtypes)
    level, threads = level_of(target), threads_of(target)
    return [(nest, choose(nest, level, threads, rounding=work.rounding)) for nest in nests]


def can_flush(level: CpuLevel) -> bool:
    """Whether code of a level can take subnormal numbers for 0."""
    return level.architecture == "x86_64"


def read_subnormals(record: Mapping[str, Attribute]) -> str:
    """The entry of a record. Raises PlanError if it is none."""
    return one_of(record, "subnormals", (ZERO, KEEP))


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


KERNELS: tuple[KernelDescriptor, ...] = (MultiTensorKernel(),)
"""The kernels of this family."""
