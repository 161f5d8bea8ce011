"""The descriptor of `cuda.attention_simt`: what it can run, what it would cost, and the record of its launch.

No code generator is imported here.
"""

from __future__ import annotations

from math import ceil

from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.problem import (
    KIND,
    MASK_TYPES,
    AttentionProblem,
    common_reason,
    common_record,
    problem_of,
)
from aicf.backends.cuda.families.records import CudaKernel, Shape
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import TargetAttr

SIMT_WARPS, SIMT_ROWS = 4, 4
"""Warps of a block and queries of a warp of `cuda.attention_simt`; its lanes share the keys of a tile."""

_START_US = 3.0
"""Of a launch."""
_TENSOR_TYPES = ("f16", "bf16")
_PART_OF_TENSOR_PEAK = 0.3
"""What products of the size of scores reach. Measured on an H100 with 1024 queries and keys of 256 in f16: products
3.8 and 3.9 us, a softmax of about 3; this kernel is predicted to take 150."""


def simt_shared_bytes(problem: AttentionProblem) -> int:
    """Shared memory of a block of `cuda.attention_simt`: f32 queries, 32 keys (padded by one element) and
    values (padded to whole warps)."""
    values = 32 * 32 * simt_columns(problem)
    return 4 * (SIMT_WARPS * SIMT_ROWS * problem.d + 32 * (problem.d + 1) + values)


def simt_columns(problem: AttentionProblem) -> int:
    """Columns of the result that a lane of `cuda.attention_simt` computes."""
    return -(-problem.dv // 32)


class SimtAttentionKernel(UndecidedKernel, CudaKernel[None]):
    """Attention in f32 arithmetic (IEEE) for any strides, see `template.py`."""

    id = "cuda.attention_simt"
    library = "simt"
    version = 3
    kinds = frozenset({KIND})
    simplicity = 1

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        problem = problem_of(work)
        if (reason := common_reason(work, problem)) is not None:
            return reason
        if problem.dtype not in MASK_TYPES:
            return (
                f"attention in {problem.dtype} has no code on cuda, only in {', '.join(MASK_TYPES)}: cast it"
            )
        if problem.dv > 256:
            return f"a value has {problem.dv} elements, more than the 256 that fit in registers"
        shared, room = simt_shared_bytes(problem), arch_named(target.arch.data).shared_bytes
        if shared > room:
            return f"queries of {problem.d} elements need {shared} bytes of shared memory, {room} are there"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: products at a quarter of the f32 peak, from shared memory."""
        problem, arch = problem_of(work), arch_named(target.arch.data)
        blocks = -(-problem.m // (SIMT_WARPS * SIMT_ROWS)) * problem.count
        rounds = -(-blocks // (arch.multiprocessors * 4))
        seen = problem.tiles_seen(SIMT_WARPS * SIMT_ROWS, 32)
        work_of_block = 2 * SIMT_WARPS * SIMT_ROWS * 32 * sum(seen) / len(seen) * (problem.d + problem.dv)
        rate = arch.f32_tflops * 1e6 / 4 / (arch.multiprocessors * 4)
        return _START_US + rounds * work_of_block / rate

    def unfused_us(self, work: Workload, target: TargetAttr) -> float | None:
        """See `Kernel`: of halves two products on tensor cores, and a softmax of scores in memory. In f32 products have
        no such units, so every fusion is formed."""
        problem, arch = problem_of(work), arch_named(target.arch.data)
        if problem.dtype not in _TENSOR_TYPES:
            return None
        scores = problem.count * problem.m * problem.n
        products = 2 * scores * (problem.d + problem.dv) / (_PART_OF_TENSOR_PEAK * arch.tensor_tflops * 1e6)
        # Scores are written, read and written by the softmax, and read again.
        moved = 4 * scores * ELEMENT_BYTES[problem.dtype] / (arch.bandwidth_gbs * 1e3)
        return 3 * _START_US + products + moved

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        problem = problem_of(work)
        blocks = ceil(problem.m / (SIMT_WARPS * SIMT_ROWS)) * problem.count
        shape = Shape((blocks, 1, 1), (32 * SIMT_WARPS, 1, 1), (1, 1, 1), simt_shared_bytes(problem))
        order = self.fixed_order(work, target)
        return common_record(work, arch_named(target.arch.data), shape, order)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: there is one order."""
        return "keys in tiles of 32, in order; sums over the keys of a tile by halving"


KERNELS = (SimtAttentionKernel(),)
