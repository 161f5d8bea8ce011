"""What the descriptors of attention's gradients have in common. A kernel adds its decisions (a spec), which of them are
legal, what they cost, and their entries in the record. Imports no code generator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.problem import (
    KIND,
    BackwardProblem,
    problem_of,
    types_reason,
)
from aicf.backends.cuda.families.attention.problem import AttentionProblem, common_reason, common_record
from aicf.backends.cuda.families.records import CudaKernel, Shape, integers
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

Spec = TypeVar("Spec")


class BackwardKernel(CudaKernel[Spec]):
    """A kernel for the gradients of attention in f16 and bf16, whose variants are specs."""

    kinds = frozenset({KIND})

    # What a kernel adds

    @abstractmethod
    def operands_reason(self, work: Workload, problem: BackwardProblem) -> str | None:
        """Why sizes or strides have no code, None if they have."""

    ranked: Callable[[AttentionProblem, GpuArch, bool], Sequence[Spec]]
    """All specs that make sense, by the prior the cheapest first; if the last argument is true only those that combine
    sums in one order, whatever the number of queries and batch elements."""
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
        reason = (
            self.arch_reason(arch)
            or common_reason(work, problem.attention)
            or types_reason(work, problem)
            or self.operands_reason(work, problem)
        )
        if reason is None and not self._ranked(work, target):
            return f"no tiling fits the registers and shared memory of {arch.name}"
        return reason

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        arch = arch_named(target.arch.data)
        return self.us(problem_of(work).attention, self.schedule(work, target), arch)

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """See `Kernel`: the records of all specs, by the prior the cheapest first."""
        return [self.record_of(work, target, spec) for spec in self._ranked(work, target)]

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return self.reason(problem_of(work).attention, schedule, arch_named(target.arch.data))

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[Spec]:
        return self.ranked(problem_of(work).attention, arch_named(target.arch.data), work.batch_invariant)


def hopper_reason(arch: GpuArch) -> str | None:
    """Why an architecture has no warpgroup products or bulk copies, None if it has both."""
    if arch.has_tma and arch.has_wgmma:
        return None
    return f"warpgroup products and bulk tensor copies need sm_90a, the target is {arch.name}"


def record_of_two(
    work: Workload, arch: GpuArch, shapes: tuple[Shape, Shape], order: str, workspace_bytes: int
) -> dict[str, Attribute]:
    """The entries of a kernel of two launches: for the gradient for queries, then for those for keys and values."""
    of_queries, of_keys = shapes
    return {
        **common_record(work, arch, of_queries, order),
        "keys_grid": integers(of_keys.grid),
        "keys_block": integers(of_keys.block),
        "keys_shared_bytes": integer(of_keys.shared_bytes),
        "workspace_bytes": integer(workspace_bytes),
    }
