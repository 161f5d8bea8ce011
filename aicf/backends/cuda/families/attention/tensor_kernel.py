"""The descriptor of attention on tensor cores: what `cuda.attention` and `cuda.attention_wgmma` have in common.

A kernel adds its decisions (a spec), which of them are legal, what they cost, and their entries in the record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.problem import (
    HALVES,
    KIND,
    AttentionProblem,
    common_reason,
    problem_of,
)
from aicf.backends.cuda.families.records import CudaKernel
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

Spec = TypeVar("Spec")


class TensorAttention(CudaKernel[Spec]):
    """A kernel whose variants are specs."""

    kinds = frozenset({KIND})

    # What a kernel adds

    @abstractmethod
    def operands_reason(self, work: Workload, problem: AttentionProblem) -> str | None:
        """Why sizes, strides or the scale have no code, None if they have."""

    ranked: Callable[[AttentionProblem, GpuArch, bool], Sequence[Spec]]
    """All specs that make sense, by the prior the cheapest first; if the last argument is true only those that combine
    keys in one order, whatever the number of queries and batch elements."""
    us: Callable[[AttentionProblem, Spec, GpuArch], float]
    """Predicted microseconds."""
    reason: Callable[[AttentionProblem, Spec, GpuArch], str | None]
    """Why a spec cannot run a problem, None if it can."""

    def arch_reason(self, arch: GpuArch) -> str | None:
        """Why an architecture runs none of it, None if it may."""
        return None

    # What follows

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: f16 and bf16, on the architectures and operands that the subclass takes."""
        problem, arch = problem_of(work), arch_named(target.arch.data)
        if (reason := self.arch_reason(arch) or common_reason(work, problem)) is not None:
            return reason
        if problem.dtype not in HALVES:
            return f"tensor cores multiply f16 and bf16 here, not {problem.dtype}: use cuda.attention_simt or cast"
        if (reason := self.operands_reason(work, problem)) is not None:
            return reason
        if not self._ranked(work, target):
            return f"no tiling fits the registers and shared memory of {arch.name}"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self.us(problem_of(work), self.schedule(work, target), arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """See `Kernel`: the records of all specs, by the prior the cheapest first."""
        return [self.record_of(work, target, spec) for spec in self._ranked(work, target)]

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return self.reason(problem_of(work), schedule, arch_named(target.arch.data))

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[Spec]:
        return self.ranked(problem_of(work), arch_named(target.arch.data), work.batch_invariant)
