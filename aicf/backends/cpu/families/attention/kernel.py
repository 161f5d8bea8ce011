"""Descriptors of the CPU kernels that compute an attention as one instruction. No code generator is imported here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from xdsl.ir import Attribute, BlockArgument

from aicf.backends.common.record import Record, read_integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cpu.families.attention.schedule import (
    GUARDS,
    AttentionProblem,
    AttentionSpec,
    choose,
    cost_us,
    read_attention,
    softmax_cycles,
)
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.kernel import FIXED_SPLITS, GemmKernel
from aicf.backends.cpu.families.gemm.problem import contiguous
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ, SPLITS, traffic_cycles
from aicf.backends.cpu.families.legality import (
    level_reason,
    strided,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.families.records import ATTENTION_VERSION, attention_record, attention_spec, get_bool
from aicf.backends.cpu.target import ACCUMULATORS, ELEMENT_BYTES, FLOATS, HALVES
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import FLAGS
from aicf.dialects.logical import CastOp, MulOp
from aicf.dialects.types import element_of

_PARTS = 1.03
"""Factor of what the model of the parts leaves out, such as what the start of each instruction takes. Measured over
queries and keys from 1 to 512: both ways take about the same time there, and the median of the predictions was off by
this."""


@dataclass(frozen=True)
class AttentionKernel(CpuKernel[AttentionSpec]):
    """The packed microkernel for scores and output, with the softmax of a block of rows in cache between them."""

    library = "flash"

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = ATTENTION_VERSION
    kinds: frozenset[str] = frozenset({"attention"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return _attention_reason(work) or level_reason(target, self.level)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(self.schedule(work, target))

    def unfused_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: two products, a softmax, what multiplies queries and keys first, and a copy where the
        result is no matrix after the other."""
        problem = _problem(work)
        product = GemmKernel("", self.level, 0)
        parts = sum(product.product_us(part, target) for part in _products(work, problem))
        lanes, threads = variant_of(target, self.level).lanes(problem.dtype), threads_of(target)
        size = ELEMENT_BYTES[problem.dtype]
        cycles = problem.count * softmax_cycles(problem, lanes) / threads
        cycles += MEETING_CYCLES if threads > 1 else 0.0
        # Scores are written, read and written by the softmax, and read again.
        cycles += 4 * traffic_cycles(problem.count * problem.m * problem.n * size)
        cycles += sum(2 * traffic_cycles(elements * size) for elements in _scaled_first(work))
        if work.results[0].strides != contiguous(work.results[0].shape):
            cycles += 2 * traffic_cycles(problem.count * problem.m * problem.dv * size)
        return _PARTS * (parts + cycles / NOMINAL_GHZ / 1000)

    def schedule(self, work: Workload, target: TargetAttr) -> AttentionSpec:
        splits = FIXED_SPLITS if work.batch_invariant else SPLITS
        return choose(_problem(work), variant_of(target, self.level), threads_of(target), splits)

    def record_of(self, work: Workload, target: TargetAttr, schedule: AttentionSpec) -> dict[str, Attribute]:
        named = {name: work.attrs[name] for name in ("scale", "causal", "past", *GUARDS)}
        return {**attention_record(schedule), **named}

    def read(self, work: Workload, record: Record, target: TargetAttr) -> AttentionSpec:
        return attention_spec(record, _problem(work), variant_of(target, self.level).has_fma)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: AttentionSpec) -> str | None:
        return threads_reason(schedule.threads, target)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: both products as any other, and a row of scores by its length and the vector."""
        level = variant_of(target, self.level)
        rounding = "once" if level.has_fma else "apart"
        return f"{self.schedule(work, target).combination_order}, products and sums rounded {rounding}"


def _problem(work: Workload) -> AttentionProblem:
    past = read_integer(work.attrs, "past") if get_bool(work.attrs, "causal") else None
    guards = {name: get_bool(work.attrs, name) for name in GUARDS}
    operands = [strided(operand) for operand in work.operands]
    return read_attention(operands, strided(work.results[0]), past, **guards)


def _attention_reason(work: Workload) -> str | None:
    dtype = work.operands[0].dtype
    if dtype not in FLOATS:
        return f"an attention is of {', '.join(FLOATS)}"
    if len({operand.dtype for operand in (*work.operands[:3], *work.results)}) > 1:
        return "queries, keys, values and result are not of one type"
    if any(mask.dtype not in (dtype, ACCUMULATORS[dtype]) for mask in work.operands[3:]):
        return f"its mask is neither {dtype} nor {ACCUMULATORS[dtype]}"
    types = {element_of(op.results[0].type).name for op in work.body.ops if isinstance(op, CastOp)}
    if not types <= {dtype, ACCUMULATORS[dtype]}:
        return "its scores are computed in another type"
    if work.rounding == "strict" and dtype in HALVES:
        return f"scores and weights stay in f32 here, the policy wants them rounded to {dtype}"
    if any(prod(operand.shape) == 0 for operand in work.operands):
        return "nothing to multiply"
    return None


def _scaled_first(work: Workload) -> list[int]:
    """Elements of queries and of keys, where each is multiplied before the product."""
    scaled = (op for op in work.body.ops if isinstance(op, MulOp))
    return [
        prod(work.operands[operand.index].shape)
        for op in scaled
        for operand in op.operands
        if isinstance(operand, BlockArgument)
    ]


def _products(work: Workload, problem: AttentionProblem) -> tuple[Workload, Workload]:
    """The two products as instructions of their own, with the scores in memory between them."""
    q, k, v = work.operands[:3]
    shape = (*problem.batch, problem.m, problem.n)
    scores = OperandInfo("temp", shape, q.dtype, contiguous(shape))
    output = OperandInfo("temp", work.results[0].shape, q.dtype, contiguous(work.results[0].shape))

    def product(a: OperandInfo, b: OperandInfo, result: OperandInfo, transpose_b: bool) -> Workload:
        attrs = {"transpose_a": FLAGS[False], "transpose_b": FLAGS[transpose_b]}
        return replace(work, kind="gemm", attrs=attrs, operands=(a, b), results=(result,))

    return product(q, k, scores, True), product(scores, v, output, False)


KERNELS = (
    AttentionKernel("cpu.attention_avx512", "x86-64-v4", 4),
    AttentionKernel("cpu.attention_avx2", "x86-64-v3", 3),
    AttentionKernel("cpu.attention_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
