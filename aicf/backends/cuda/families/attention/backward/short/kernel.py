"""Descriptor of `cuda.attention_backward_short`: what it can run, at what predicted cost, with which record. Imports no
code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.problem import (
    KIND,
    bulk_reason,
    problem_of,
    types_reason,
)
from aicf.backends.cuda.families.attention.backward.short.schedule import (
    CODEC,
    TILES,
    Spec,
    layout_of,
    predicted_us,
    ranked_specs,
    spec_reason,
)
from aicf.backends.cuda.families.attention.problem import AttentionProblem, common_reason, common_record
from aicf.backends.cuda.families.records import CudaKernel, Shape
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import TargetAttr


class ShortAttentionBackwardKernel(CudaKernel[Spec]):
    """The gradients of attention for f16 and bf16 where a block has all queries and keys of a head, see
    `template.py`."""

    id = "cuda.attention_backward_short"
    library = "flash_v3"
    version = 1
    kinds = frozenset({KIND})
    simplicity = 3
    codec = CODEC

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        problem, arch = problem_of(work), arch_named(target.arch.data)
        if not (arch.has_tma and arch.has_wgmma):
            return f"warpgroup products and bulk tensor copies need sm_90a, the target is {arch.name}"
        reason = (
            common_reason(work, problem.attention)
            or types_reason(work, problem)
            or _sizes_reason(work, problem.attention)
            or bulk_reason(problem)
        )
        if reason is None and not ranked_specs(problem.attention, arch):
            return f"no tiling fits the registers and shared memory of {arch.name}"
        return reason

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        arch = arch_named(target.arch.data)
        return predicted_us(problem_of(work).attention, self.schedule(work, target), arch)

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """See `Kernel`: the records of all specs, by the prior the cheapest first."""
        return [self.record_of(work, target, spec) for spec in self._ranked(work, target)]

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return spec_reason(problem_of(work).attention, schedule, arch_named(target.arch.data))

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        problem, arch = problem_of(work).attention, arch_named(target.arch.data)
        shared = layout_of(problem, schedule).total
        shape = Shape((problem.count, 1, 1), (schedule.threads, 1, 1), shared_bytes=shared)
        order = "keys of a lane in order, then lanes by halving; in products keys and queries in order"
        return common_record(work, arch, shape, order) | CODEC.entries(schedule)

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[Spec]:
        return ranked_specs(problem_of(work).attention, arch_named(target.arch.data))


def _sizes_reason(work: Workload, problem: AttentionProblem) -> str | None:
    """Why sizes have no code here."""
    if max(problem.m, problem.n) > TILES[-1]:
        return (
            f"{problem.m} queries and {problem.n} keys: a block has up to {TILES[-1]} of each, "
            "use cuda.attention_backward"
        )
    if problem.d not in (64, 128) or problem.dv not in (64, 128):
        return (
            f"queries and values of {problem.d} and {problem.dv} elements are no panels of 64: 64 or 128 each"
        )
    if work.batch_invariant:
        return "the order of sums may not depend on the number of queries: use cuda.attention_backward"
    return None


KERNELS = (ShortAttentionBackwardKernel(),)
"""The kernel of this family."""
