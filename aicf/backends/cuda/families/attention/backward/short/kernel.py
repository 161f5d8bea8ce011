"""Descriptor of `cuda.attention_backward_short`: what it can run, at what predicted cost, with which record. Imports no
code generator."""

from __future__ import annotations

from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.descriptor import BackwardKernel, hopper_reason
from aicf.backends.cuda.families.attention.backward.problem import BackwardProblem, bulk_reason, problem_of
from aicf.backends.cuda.families.attention.backward.short.schedule import (
    CODEC,
    TILES,
    Spec,
    layout_of,
    predicted_us,
    ranked_specs,
    spec_reason,
)
from aicf.backends.cuda.families.attention.problem import AttentionProblem, common_record
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr


class ShortAttentionBackwardKernel(BackwardKernel[Spec]):
    """The gradients of attention for f16 and bf16 where a block has all queries and keys of a head, see
    `template.py`."""

    id = "cuda.attention_backward_short"
    library = "flash_v3"
    version = 1
    simplicity = 3
    codec = CODEC
    ranked = staticmethod(ranked_specs)
    us = staticmethod(predicted_us)
    reason = staticmethod(spec_reason)

    def arch_reason(self, arch: GpuArch) -> str | None:
        return hopper_reason(arch)

    def operands_reason(self, work: Workload, problem: BackwardProblem) -> str | None:
        return _sizes_reason(problem.attention) or bulk_reason(problem)

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        problem, arch = problem_of(work).attention, arch_named(target.arch.data)
        shared = layout_of(problem, schedule).total
        shape = Shape((problem.count, 1, 1), (schedule.threads, 1, 1), shared_bytes=shared)
        order = "keys of a lane in order, then lanes by halving; in products keys and queries in order"
        return common_record(work, arch, shape, order) | CODEC.entries(schedule)


def _sizes_reason(problem: AttentionProblem) -> str | None:
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
    return None


KERNELS = (ShortAttentionBackwardKernel(),)
"""The kernel of this family."""
