"""Groups that become loops, as the passes that join them or give them more ops see them: which they are, what they cost
alone, and which names a policy has for them."""

from __future__ import annotations

from math import inf

from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_updates import is_update
from aicf.passes.bodies.workload import workload_of
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.fusion.merges.merge import members
from aicf.passes.fusion.profitability import Profitability
from aicf.passes.support.identity import op_id
from aicf.passes.support.policy import without_bucket
from aicf.policies.kernel_policy import KernelPolicy

NAMED = (
    "the policy gives a kernel or record to '{}', which would be no instruction of its own: drop that entry"
)
"""The reason against a fusion that takes an instruction away which the policy names."""


def is_loops(op: Operation) -> bool:
    """Whether an op is a group of pointwise ops, reductions and scans alone, without a kernel yet."""
    if not isinstance(op, GroupOp) or op.kernel is not None:
        return False
    if any(op_id(member) is None for member in members(op)):
        return False
    work = workload_of(op).work
    if work.code is None or is_update(work.code):
        return False
    return not any(each.has_trait(logical.Contraction) for each in work.body.ops)


def alone_us(group: GroupOp, context: FusionContext) -> float:
    """Predicted microseconds of a group by itself, infinite if no kernel runs it alone."""
    profitability = Profitability.of(workload_of(group), context.target, context.policy)
    return profitability.fused_us if profitability.legal else inf


def is_named(identity: str, policy: KernelPolicy) -> bool:
    """Whether the policy gives a kernel to a group of this id, or of this id without its bucket."""
    return not {*policy.kernels, *policy.records}.isdisjoint((identity, without_bucket(identity)))
