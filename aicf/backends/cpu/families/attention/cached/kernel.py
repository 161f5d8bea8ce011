"""Descriptors of the CPU kernels of attention over a cache of keys and values. No code generator is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.record import Record, read_integer
from aicf.backends.common.rotation import NOT_TURNED, rotation_in
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.attention.cached.problem import (
    FACTORS,
    INDEX,
    NEW_KEY,
    NEW_VALUE,
    CachedProblem,
    read_cached,
)
from aicf.backends.cpu.families.attention.cached.records import cached_record, cached_spec
from aicf.backends.cpu.families.attention.cached.schedule import BLOCK_VECTORS, CachedSpec, choose, cost_us
from aicf.backends.cpu.families.attention.schedule import GUARDS
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import (
    level_reason,
    strided,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.families.records import pairs
from aicf.backends.cpu.target import ACCUMULATORS, FLOATS, HALVES, CpuLevel
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.logical import CastOp
from aicf.dialects.types import element_of

INDEX_TYPES = ("i32", "i64")
KIND, STEP = "cached_attention", "cached_attention_step"


@dataclass(frozen=True)
class CachedAttentionKernel(CpuKernel[CachedSpec]):
    """Blocks of queries over tiles of keys, up to the last key that is seen, with a running softmax.

    A step of a decoder turns its queries and its new key by their position, where these are given unturned, and writes
    the row of its token first: each thread into the keys and values that it then reads.
    """

    library = "flash"

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = 3
    kinds: frozenset[str] = frozenset({KIND, STEP})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        reason = _reason(work) or level_reason(target, self.level)
        if reason is not None or work.kind != STEP:
            return reason
        return _step_reason(work, variant_of(target, self.level))

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(self.schedule(work, target))

    def schedule(self, work: Workload, target: TargetAttr) -> CachedSpec:
        return choose(_problem(work), variant_of(target, self.level), threads_of(target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: CachedSpec) -> dict[str, Attribute]:
        named = ("scale", "causal", "past", "position", "window", "softcap", *GUARDS)
        entries = {**cached_record(schedule), **{name: work.attrs[name] for name in named}}
        if work.kind != STEP:
            return entries
        return {**entries, "rotation": work.attrs["rotation"], "may_alias": pairs([(1, 1), (2, 2)])}

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
    operands, results = ([strided(each) for each in found] for found in (work.operands, work.results))
    return read_cached(operands, results, work.attrs)


def _reason(work: Workload) -> str | None:
    dtype = work.operands[0].dtype
    if dtype not in FLOATS:
        return f"an attention is of {', '.join(FLOATS)}"
    new = work.operands[NEW_KEY : NEW_VALUE + 1] if work.kind == STEP else ()
    if len({operand.dtype for operand in (*work.operands[:3], *new, *work.results)}) > 1:
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


def _step_reason(work: Workload, level: CpuLevel) -> str | None:
    """Why no step of a decoder is run, which else is an attention that is."""
    if work.operands[INDEX].dtype not in INDEX_TYPES:
        return f"the index of the row is no {' or '.join(INDEX_TYPES)}"
    if (reason := _turning_reason(work)) is not None:
        return reason
    problem, most = _problem(work), BLOCK_VECTORS * level.lanes(ACCUMULATORS[work.operands[0].dtype])
    if problem.rows > most:
        return f"{problem.rows} queries share keys, of which a thread writes a row for {most}"
    if problem.shares_state:
        return "batch elements share keys or values, which several threads would write: write the row apart"
    return None


def _turning_reason(work: Workload) -> str | None:
    """Why queries and the new key are not turned on the way, if the work does that."""
    if rotation_in(work.attrs) == NOT_TURNED:
        return None
    query, wanted = work.operands[0], ACCUMULATORS[work.operands[0].dtype]
    if query.shape[-3] != 1:
        return (
            f"the queries of {query.shape[-3]} tokens are not turned here: instructions of their own do that"
        )
    if any(factors.dtype != wanted for factors in work.operands[FACTORS]):
        return f"cosines and sines that turn pairs are {wanted} here: cast them"
    return None


KERNELS = (
    CachedAttentionKernel("cpu.cached_attention_avx512", "x86-64-v4", 4),
    CachedAttentionKernel("cpu.cached_attention_avx2", "x86-64-v3", 3),
    CachedAttentionKernel("cpu.cached_attention_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
