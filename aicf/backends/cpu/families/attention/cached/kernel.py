"""Descriptors of the CPU kernels of attention over a cache of keys and values. No code generator is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.record import Record, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.attention.cached.records import cached_record, cached_spec
from aicf.backends.cpu.families.attention.cached.schedule import (
    CachedProblem,
    CachedSpec,
    choose,
    cost_us,
    read_cached,
)
from aicf.backends.cpu.families.attention.schedule import GUARDS
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import (
    level_reason,
    strided,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.target import ACCUMULATORS, FLOATS, HALVES
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.logical import CastOp
from aicf.dialects.types import element_of

KIND = "cached_attention"


@dataclass(frozen=True)
class CachedAttentionKernel(CpuKernel[CachedSpec]):
    """Blocks of queries over tiles of keys, up to the last key that is seen, with a running softmax."""

    library = "flash"

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    kinds: frozenset[str] = frozenset({KIND})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return _reason(work) or level_reason(target, self.level)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(self.schedule(work, target))

    def schedule(self, work: Workload, target: TargetAttr) -> CachedSpec:
        return choose(_problem(work), variant_of(target, self.level), threads_of(target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: CachedSpec) -> dict[str, Attribute]:
        named = ("scale", "causal", "past", "position", "window", "softcap", *GUARDS)
        return {**cached_record(schedule), **{name: work.attrs[name] for name in named}}

    def read(self, work: Workload, record: Record, target: TargetAttr) -> CachedSpec:
        return cached_spec(record, _problem(work), variant_of(target, self.level).has_fma)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: CachedSpec) -> str | None:
        return threads_reason(schedule.threads, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: both products as any other, and keys tile by tile from the first one on."""
        level = variant_of(target, self.level)
        rounding = "once" if level.has_fma else "apart"
        return f"{self.schedule(work, target).combination_order}, products and sums rounded {rounding}"


def _problem(work: Workload) -> CachedProblem:
    return read_cached([strided(operand) for operand in work.operands], strided(work.results[0]), work.attrs)


def _reason(work: Workload) -> str | None:
    dtype = work.operands[0].dtype
    if dtype not in FLOATS:
        return f"an attention is of {', '.join(FLOATS)}"
    if len({operand.dtype for operand in (*work.operands[:3], *work.results)}) > 1:
        return "queries, keys, values and result are not of one type"
    if read_integer(work.attrs, "mask"):
        return "it adds no mask: a position and a window say which keys are seen"
    types = {element_of(op.results[0].type).name for op in work.body.ops if isinstance(op, CastOp)}
    if not types <= {dtype, ACCUMULATORS[dtype]}:
        return "its scores are computed in another type"
    if work.rounding == "strict" and dtype in HALVES:
        return f"scores and weights stay in f32 here, the policy wants them rounded to {dtype}"
    if any(prod(operand.shape) == 0 for operand in work.operands):
        return "nothing to multiply"
    return None


KERNELS = (
    CachedAttentionKernel("cpu.cached_attention_avx512", "x86-64-v4", 4),
    CachedAttentionKernel("cpu.cached_attention_avx2", "x86-64-v3", 3),
    CachedAttentionKernel("cpu.cached_attention_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
