"""Descriptor of `cuda.attention_backward_wgmma`: what it can run, at what predicted cost, with which record. Imports no
code generator."""

from __future__ import annotations

from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.descriptor import (
    BackwardKernel,
    hopper_reason,
    record_of_two,
)
from aicf.backends.cuda.families.attention.backward.problem import BackwardProblem, bulk_reason, problem_of
from aicf.backends.cuda.families.attention.backward.wgmma.schedule import (
    CODEC,
    TILE,
    Phase,
    Spec,
    phases,
    predicted_us,
    ranked_specs,
    spec_reason,
    workspace_bytes,
)
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr


class WgmmaAttentionBackwardKernel(BackwardKernel[Spec]):
    """The gradients of attention for f16 and bf16 out of bulk tensor copies, see `template.py`."""

    id = "cuda.attention_backward_wgmma"
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
        d, dv = problem.attention.d, problem.attention.dv
        if d not in (64, 128) or dv not in (64, 128):
            return f"queries and values of {d} and {dv} elements are no panels of 64: use cuda.attention_backward"
        return bulk_reason(problem, work.batch_invariant)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warp has whole rows of scores, and hidden tiles add zeros."""
        return f"by warpgroups, keys and queries in tiles of {TILE}, in order"

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        problem, arch = problem_of(work).attention, arch_named(target.arch.data)
        rows, columns = (_shape(phase, problem.count) for phase in phases(problem, schedule))
        order = (
            "keys of a lane in tiles, in order, then lanes by halving; for keys and values queries in order"
        )
        workspace = workspace_bytes(problem)
        return record_of_two(work, arch, (rows, columns), order, workspace) | CODEC.entries(schedule)


def _shape(phase: Phase, count: int) -> Shape:
    return Shape((phase.blocks * count, 1, 1), (phase.threads, 1, 1), shared_bytes=phase.shared_bytes)


KERNELS = (WgmmaAttentionBackwardKernel(),)
"""The kernel of this family."""
