"""Descriptor of `cuda.attention_backward`: what it can run, at what predicted cost, with which record. Imports no code
generator."""

from __future__ import annotations

from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.descriptor import BackwardKernel, record_of_two
from aicf.backends.cuda.families.attention.backward.problem import BackwardProblem, problem_of
from aicf.backends.cuda.families.attention.backward.tensor.schedule import (
    CODEC,
    Phase,
    Spec,
    phases,
    predicted_us,
    ranked_specs,
    spec_reason,
    workspace_bytes,
)
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import TargetAttr


class AttentionBackwardKernel(BackwardKernel[Spec]):
    """The gradients of attention for f16 and bf16, see `template.py`."""

    id = "cuda.attention_backward"
    library = "flash_v2"
    version = 2
    simplicity = 2
    codec = CODEC
    ranked = staticmethod(ranked_specs)
    us = staticmethod(predicted_us)
    reason = staticmethod(spec_reason)

    def operands_reason(self, work: Workload, problem: BackwardProblem) -> str | None:
        return _rows_reason(work, problem)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warp has whole rows of scores, and hidden tiles add zeros."""
        return f"on tensor cores, keys and queries in tiles of {self.schedule(work, target).tile}, in order"

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        problem, arch = problem_of(work).attention, arch_named(target.arch.data)
        rows, columns = (_shape(phase, problem.count) for phase in phases(problem, schedule))
        order = (
            "keys of a lane in tiles, in order, then lanes by halving; for keys and values queries in order"
        )
        workspace = workspace_bytes(problem, schedule)
        return record_of_two(work, arch, (rows, columns), order, workspace) | CODEC.entries(schedule)


def _shape(phase: Phase, count: int) -> Shape:
    return Shape((phase.blocks * count, 1, 1), (phase.threads, 1, 1), shared_bytes=phase.shared_bytes)


def _rows_reason(work: Workload, problem: BackwardProblem) -> str | None:
    """Why sizes or strides have no code. Where the order of sums is fixed, the batch does not count: strides are judged
    as if there were several of each."""
    attention = problem.attention
    for name, size in (("a query", attention.d), ("a value", attention.dv)):
        if size % 16 != 0 or size > 128:
            return f"{name} has {size} elements: tensor cores take 16, 32, ... 128 here"
    batch = tuple(2 for _ in attention.batch) if work.batch_invariant else attention.batch
    matrices = (
        ("queries", attention.q, attention.m),
        ("keys", attention.k, attention.n),
        ("values", attention.v, attention.n),
        ("gradient", attention.result, attention.m),
    )
    for name, rows, count in matrices:
        if not rows.moves_in_eights(count, batch):
            return (
                f"rows of the {name} are not neighbours that start at multiples of 16 bytes: copy them first"
            )
    return None


KERNELS = (AttentionBackwardKernel(),)
"""The kernel of this family."""
