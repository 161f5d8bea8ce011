"""The descriptor of the kernel that finds the largest element of each window. No code generator is imported here."""

from __future__ import annotations

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.pool.kernel import PoolKernel, strided
from aicf.backends.cuda.families.pool.problem import PoolProblem, read_taps
from aicf.backends.cuda.families.pool.schedule import UNROLLED
from aicf.backends.cuda.target import FLOATS
from aicf.dialects.emit_types import TargetAttr


class PoolTapsKernel(PoolKernel):
    """As the pooling itself: a thread has a vector of channels of some neighbouring results. Short windows only."""

    id = "cuda.pool_taps"
    kinds = frozenset({"pool_taps"})

    def problem(self, work: Workload) -> PoolProblem:
        return read_taps(work.attrs, strided(work.operands[0]), strided(work.results[0]))

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := super().legal(work, target)) is not None:
            return reason
        problem = self.problem(work)
        if problem.dtype not in FLOATS:
            return f"it compares floats, its operand is {problem.dtype}"
        if problem.taps > UNROLLED:
            return f"its windows have {problem.taps} elements, and a thread compares {UNROLLED}"
        return None


KERNELS = (PoolTapsKernel(),)
"""The kernel of this family."""
