"""`fuse-moments`: the statistics that a batch norm, or its gradient, takes of a convolution's result join that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isinf

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels
from aicf.dialects.emit import GroupOp
from aicf.errors import PolicyError
from aicf.passes.bodies.workload import target_of, workload_of
from aicf.passes.fusion.forming import FusionContext, fusion_contexts
from aicf.passes.fusion.merges.group_loops import NAMED, alone_us, is_loops, is_named
from aicf.passes.fusion.merges.merge import window
from aicf.passes.fusion.merges.moments import Moments, moments_between
from aicf.passes.fusion.profitability import SAME_TIME, Profitability, slower
from aicf.passes.support.identity import position_of
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import without_bucket
from aicf.passes.support.works_on import GROUPS
from aicf.policies.kernel_policy import BATCH_INVARIANT, is_meant

_KIND = "conv_moments"
_WINDOW = 64
"""How many ops after a convolution are searched for the norm of its result."""


@dataclass(frozen=True)
class FuseMomentsPass(ModulePass):
    """Moves the sums of a batch norm, and what follows from them for a channel, to the convolution that it normalises.

    They are taken of what the convolution stores while that is on the chip, so the norm reads its operand once, not
    twice. The same holds of the sums that the gradient of a norm takes of what a convolution passes back to it. Runs
    when it is decided which values lie channels-last, for only then kernels take them. The two groups stay two, with
    less in the second, if a kernel takes them and both are predicted to take no longer.

    Raises PolicyError for a convolution without moments to which the policy gives a kernel that takes some.
    """

    name = "fuse-moments"
    works_on = GROUPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), grouped=True):
            if context.why_none_of((_KIND,)) is not None:
                continue
            for group in list(context.function.body.block.ops):
                if isinstance(group, GroupOp) and group.parent is not None and _is_convolution(group):
                    _fuse(group, context)


def _is_convolution(group: GroupOp) -> bool:
    """Whether a group, none that came with a kernel, is a convolution with one result."""
    return group.kernel is None and len(group.results) == 1 and workload_of(group).work.kind == "conv"


def _fuse(convolution: GroupOp, context: FusionContext) -> None:
    """Moves the moments that the first norm takes of a convolution, or notes why they stay."""
    found = next(_norms(convolution), None)
    if found is None:
        _check_unpinned(convolution, "no norm takes statistics of its result", context)
        return
    why_not, figures = _move(found, context)
    if why_not is not None:
        _check_unpinned(convolution, why_not, context)
    choice = "taken by the convolution" if why_not is None else "not fused"
    because = why_not or "what it stores is on the chip, and is read once less"
    subjects = [found.convolution_id, *found.reduction_ids]
    record_decision(context.module, FuseMomentsPass.name, subjects, choice, because, {}, figures)


def _move(found: Moments, context: FusionContext) -> tuple[str | None, Mapping[str, Attribute]]:
    """Moves moments to the convolution; why they stay if they do; and the times of both ways, where they were told."""
    if (why_not := _against(found, context)) is not None:
        return why_not, {}
    whole, rest = found.groups()
    why_not, figures = _against_kernels(found, whole, rest, context)
    if why_not is None:
        found.replace(whole, rest)
    else:
        _discard(rest, whole)
    return why_not, figures


def _check_unpinned(convolution: GroupOp, why: str, context: FusionContext) -> None:
    """Raises PolicyError if the policy gives a convolution without moments a kernel that only runs some with them."""
    id_, work, named = convolution.id.data, workload_of(convolution), context.policy.kernels
    key = next((key for key in (id_, without_bucket(id_), work.work.kind) if key in named), None)
    kernel = None if key is None else get_kernels(context.target.backend.data).get(named[key])
    if kernel is None or _KIND not in kernel.kinds or work.work.kind in kernel.kinds:
        return
    legal = ", ".join(each.id for each in context.profitability_of(work).legal)
    raise PolicyError(
        f"kernels.{key}: '{kernel.id}' cannot run it: it takes moments, and '{id_}' has none to take: {why}; "
        f"legal: {legal}",
        location=position_of(convolution),
    )


def _discard(*groups: GroupOp | None) -> None:
    """Erases groups that were only asked for, users first."""
    for group in groups:
        if group is not None:
            group.erase()


def _norms(convolution: GroupOp) -> Iterator[Moments]:
    """The groups of loops that take moments of a convolution's result, in text order."""
    readers = {use.operation for use in convolution.results[0].uses}
    for op in window(convolution, _WINDOW):
        if op not in readers or not isinstance(op, GroupOp) or not is_loops(op):
            continue
        if (found := moments_between(convolution, op)) is not None:
            yield found


def _against(found: Moments, context: FusionContext) -> str | None:
    """Why a policy keeps the moments where they are."""
    policy = context.policy
    if not (policy.fusion.epilogue and policy.fusion.multi_output):
        return "fusion into several results is off by policy (fusion: multi_output, epilogue)"
    if policy.determinism == BATCH_INVARIANT:
        return "results may not depend on the batch (determinism), and the order of these sums does"
    if not context.may_be_one(found.members, found.copies):
        return context.why_not_fusible(found.members, found.copies)
    return None if _is_wanted(found, context) else _against_kernel_choice(found, context)


def _against_kernel_choice(found: Moments, context: FusionContext) -> str | None:
    """That the policy chose who runs one of the groups, and that is nobody who takes moments."""
    policy, kernels = context.policy, get_kernels(context.target.backend.data).values()
    for group in (found.convolution, found.norm):
        if is_named(group.id.data, policy):
            return NAMED.format(group.id.data)
    if (pinned := policy.kernels.get("conv")) is not None:
        return f"the policy pins kernel {pinned} for convolutions, and that takes no moments"
    library = policy.library_for(_KIND)
    if library is None or any(is_meant(library, each.library) for each in kernels if _KIND in each.kinds):
        return None
    return f"the policy prefers {library} for convolutions, and that takes no moments"


def _against_kernels(
    found: Moments, whole: GroupOp, rest: GroupOp | None, context: FusionContext
) -> tuple[str | None, Mapping[str, Attribute]]:
    """The reasons of the kernels, or that the groups as they are are predicted to take less time; and both times."""
    fused_us = alone_us(whole, context) + (0.0 if rest is None else alone_us(rest, context))
    if isinf(fused_us):
        return _why_illegal(whole, context), {}
    unfused_us = sum(alone_us(group, context) for group in (found.convolution, found.norm))
    figures = {"unfused_us": microseconds(unfused_us), "fused_us": microseconds(fused_us)}
    if _is_wanted(found, context) or fused_us <= unfused_us * SAME_TIME:
        return None, figures
    return slower(fused_us, unfused_us), {}


def _is_wanted(found: Moments, context: FusionContext) -> bool:
    """Whether the policy lists the moments with the convolution, or names a kernel that takes them for the convolution,
    or for all that could."""
    if context.are_listed(found.members, found.copies):
        return True
    id_, kernels = found.convolution_id, get_kernels(context.target.backend.data)
    named = (context.policy.kernels.get(key) for key in (id_, without_bucket(id_), _KIND))
    return any(name in kernels and _KIND in kernels[name].kinds for name in named if name is not None)


def _why_illegal(group: GroupOp, context: FusionContext) -> str:
    """The reasons of the kernels."""
    profitability = Profitability.of(workload_of(group), context.target, context.policy)
    told: Mapping[str, str] = profitability.rejected
    return "; ".join(f"{kernel}: {why}" for kernel, why in told.items()) or (
        profitability.no_code or "no kernel runs what is left of the norm"
    )
