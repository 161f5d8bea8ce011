"""Descriptors of the CPU kernels: what each can run, what it would cost, and the record of its decisions.

Here are those that loop over elements, and the table of all. No code generator is imported: `build.py` turns records
into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute

from aicf.backends.base import KernelDescriptor, Work
from aicf.backends.common.kernel import Kernel
from aicf.backends.common.record import Record, integer
from aicf.backends.cpu.attention_kernels import AttentionKernel
from aicf.backends.cpu.conv_kernels import ConvKernel
from aicf.backends.cpu.detection_kernels import KERNELS as DETECTION_KERNELS
from aicf.backends.cpu.gemm_kernels import BlasKernel, GemmKernel, PackKernel
from aicf.backends.cpu.gemm_norm_kernels import GemmNormKernel
from aicf.backends.cpu.legality import (
    DETERMINISM,
    VERSION,
    code_reason,
    level_of,
    may_alias,
    strided,
    threads_of,
    threads_reason,
    windows_in_pads,
)
from aicf.backends.cpu.loop_spec import LoopSpec, choose, cost_us, sharings
from aicf.backends.cpu.place_kernels import KERNELS as PLACE_KERNELS
from aicf.backends.cpu.pool_kernels import PoolKernel
from aicf.backends.cpu.records import get_int, loop_record, loop_spec, read_loops
from aicf.backends.cpu.recurrent_kernels import KERNELS as RECURRENT_KERNELS
from aicf.backends.cpu.update_kernels import KERNELS as UPDATE_KERNELS
from aicf.backends.cpu.winograd_kernels import WinogradPackKernel
from aicf.backends.moves import Move, moves
from aicf.backends.nests import LoopNest, nest_of
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import is_update

PADDED_WINDOWS = 1.4
"""How much longer loops over windows take that test for each element whether it lies in the operand than a padded copy
and loops over its windows, at least: measured on one core, 1.4 to 1.5 times where windows are neighbours, 3 to 5 times
where they are two elements apart."""


@dataclass(frozen=True)
class GeneratedKernel(Kernel[LoopSpec]):
    """Loops from the generated scalar program: pointwise chains, and reductions with what is around them.

    Version 2 adds up sums in blocks.
    """

    id: str = "cpu.generated"
    version: int = 2
    determinism: str = DETERMINISM
    simplicity: int = 1
    kinds: frozenset[str] = frozenset(
        {"generated", "add", "relu", "bias_add", "reduce_sum", "sgd_step", "layernorm_fwd", "softmax"}
    )

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        if work.code is None:
            return "it is not one set of loops over all elements"
        if is_update(work.code):
            return "it updates several tensors, each of which has loops of its own"
        return code_reason(work.code)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`."""
        return cost_us(*_decide(work, target))

    def apart_us(self, work: Work, target: TargetAttr) -> float:
        """See `FusedKernel`: windows in a pad take less behind a padded copy; nothing else is better taken apart."""
        return self.cost_us(work, target) / PADDED_WINDOWS if windows_in_pads(work.body) else inf

    def threads_us(self, work: Work, target: TargetAttr) -> dict[int, float]:
        """See `SharingKernel`."""
        nest = work_nest(work)
        found = sharings(nest, level_of(target), threads_of(target), work.batch_invariant, work.rounding)
        return {spec.threads: cost_us(nest, spec) for spec in found}

    def schedule(self, work: Work, target: TargetAttr) -> LoopSpec:
        """See `Kernel`."""
        return _decide(work, target)[1]

    def record_of(self, work: Work, target: TargetAttr, schedule: LoopSpec) -> dict[str, Attribute]:
        """See `Kernel`."""
        assert work.code is not None
        kinds_in = [operand.dtype for operand in work.operands]
        aliases = may_alias(work.code, kinds_in, [result.dtype for result in work.results])
        return {**loop_record(schedule, work_nest(work)), "may_alias": aliases}

    def read(self, work: Work, record: Record, target: TargetAttr) -> LoopSpec:
        """See `Kernel`."""
        return loop_spec(record, work_nest(work))

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: LoopSpec) -> str | None:
        """See `Kernel`."""
        return threads_reason(schedule.threads, target)

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`."""
        nest, spec = _decide(work, target)
        return spec.combination_order(nest)


def _decide(work: Work, target: TargetAttr) -> tuple[LoopNest, LoopSpec]:
    nest = work_nest(work)
    level, threads = level_of(target), threads_of(target)
    return nest, choose(nest, level, threads, work.batch_invariant, work.rounding)


def work_nest(work: Work) -> LoopNest:
    """The loops of a work with generated code."""
    assert work.code is not None
    operands = (*work.operands, *work.results)
    return nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])


@dataclass(frozen=True)
class MoveKernel(Kernel[Sequence[LoopSpec]]):
    """Moves elements: a strided copy, or operands side by side."""

    id: str
    kinds: frozenset[str]
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        if len(work.results) != 1 or self._moves(work) is None:
            return "it does more than move elements to one result"
        return None

    def _moves(self, work: Work) -> list[Move] | None:
        axis = get_int(work.attrs, "axis") if "axis" in work.attrs else 0
        return moves(
            work.body, [strided(operand) for operand in work.operands], strided(work.results[0]), axis
        )

    def _nests(self, work: Work) -> list[LoopNest]:
        found = self._moves(work)
        assert found is not None, "loops are asked for of legal work"
        return [move.nest for move in found]

    def _decide(self, work: Work, target: TargetAttr) -> list[tuple[LoopNest, LoopSpec]]:
        level, threads = level_of(target), threads_of(target)
        return [(nest, choose(nest, level, threads)) for nest in self._nests(work)]

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`."""
        return sum(cost_us(nest, spec) for nest, spec in self._decide(work, target))

    def schedule(self, work: Work, target: TargetAttr) -> Sequence[LoopSpec]:
        """See `Kernel`."""
        return [spec for _, spec in self._decide(work, target)]

    def record_of(self, work: Work, target: TargetAttr, schedule: Sequence[LoopSpec]) -> dict[str, Attribute]:
        """See `Kernel`."""
        decided = zip(self._nests(work), schedule, strict=True)
        return {
            "axis": work.attrs.get("axis", integer(0)),
            "threads": integer(max(spec.threads for spec in schedule)),
            "parts": ArrayAttr([DictionaryAttr(loop_record(spec, nest)) for nest, spec in decided]),
        }

    def read(self, work: Work, record: Record, target: TargetAttr) -> Sequence[LoopSpec]:
        """See `Kernel`."""
        return read_loops(record, self._nests(work))

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: Sequence[LoopSpec]) -> str | None:
        """See `Kernel`."""
        reasons = (threads_reason(spec.threads, target) for spec in schedule)
        return next((f"in its 'parts', {reason}" for reason in reasons if reason is not None), None)

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: nothing is combined."""
        return "none"


KERNELS: tuple[KernelDescriptor, ...] = (
    GemmKernel("cpu.gemm_avx512", "x86-64-v4", 4),
    GemmKernel("cpu.gemm_avx2", "x86-64-v3", 3),
    GemmKernel("cpu.gemm_portable", "generic", 2),
    BlasKernel(),
    ConvKernel("cpu.conv_avx512", "x86-64-v4", 4),
    ConvKernel("cpu.conv_avx2", "x86-64-v3", 3),
    ConvKernel("cpu.conv_portable", "generic", 2),
    AttentionKernel("cpu.attention_avx512", "x86-64-v4", 4),
    AttentionKernel("cpu.attention_avx2", "x86-64-v3", 3),
    AttentionKernel("cpu.attention_portable", "generic", 2),
    GemmNormKernel("cpu.gemm_norm_avx512", "x86-64-v4", 4),
    GemmNormKernel("cpu.gemm_norm_avx2", "x86-64-v3", 3),
    GemmNormKernel("cpu.gemm_norm_portable", "generic", 2),
    PoolKernel(),
    GeneratedKernel(),
    MoveKernel("cpu.copy", frozenset({"copy"})),
    MoveKernel("cpu.concat", frozenset({"concat"})),
    PackKernel(),
    WinogradPackKernel(),
    *PLACE_KERNELS,
    *RECURRENT_KERNELS,
    *DETECTION_KERNELS,
    *UPDATE_KERNELS,
)
"""All kernels of the backend, in the order in which they are considered."""
