"""`fuse-elementwise`: pointwise chains, row reductions and running sums become one kernel; the rest groups of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.traits import TrainingOnly
from aicf.errors import UnsupportedOp
from aicf.passes.bodies.indexed_reads import border_of
from aicf.passes.bodies.outlining import Outline, id_of, is_rematerializable, outline
from aicf.passes.fusion.candidates import FusionCandidates, result_count
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import FusionContext, form_group
from aicf.passes.support.identity import position_of
from aicf.policies.kernel_policy import KernelPolicy


@dataclass(frozen=True)
class _Match:
    """An op that is in no group, and the ops that could share its loops."""

    seed: Operation
    cluster: FusionCandidates


@dataclass(frozen=True)
class FuseElementwisePass(FusionPattern[_Match]):
    """Groups pointwise ops, broadcasts and reductions over the same axes with their consumers, then all that is left.

    A softmax or layer_norm, also one written in primitive ops, becomes one group, and so does a pooling with padding:
    windows in a pad read what is padded, and the pad is not written. The largest set with one result and a legal kernel
    is taken. Raises UnsupportedOp for an op that no kernel of the target runs.
    """

    name = "fuse-elementwise"
    stage = "after_views"
    benefit = 0

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        for seed in list(context.function.body.block.ops):
            if seed.parent is None or not _computes(seed):
                continue
            cluster = FusionCandidates([seed], context)
            if context.policy.fusion.elementwise and _is_pointwise(seed):
                cluster.grow(
                    lambda op, cluster=cluster: _may_follow(op, cluster),
                    "only elementwise ops and reductions are fused into one loop nest",
                )
            yield _Match(seed, cluster)

    def subjects(self, match: _Match) -> Sequence[str]:
        return [id_of(match.seed)]

    def candidates(self, match: _Match, context: FusionContext) -> Iterator[Candidate]:
        """What the policy lists, then as many ops as there are, then fewer, then the op alone."""
        if (listed := _listed(match.seed, context)) is not None:
            yield listed
        yield from match.cluster.groups(_is_elementwise)

    def form(
        self, match: _Match, plans: Iterable[Outline], tried: Mapping[str, str], context: FusionContext
    ) -> None:
        (plan,) = plans
        if len(plan.members) > 1:
            super().form(match, [plan], tried, context)
            return
        subjects, left_out = self.subjects(match), self.left_out(match, plan, tried)
        form_group(plan, context)
        if left_out:
            self.record(context, subjects, self.decision(match, plan, tried), left_out)

    def left_out(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Mapping[str, str]:
        return match.cluster.left_out(plan.members, tried)

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        if len(plan.members) > 1:
            because = "intermediates stay in registers or a row of cache instead of memory"
            return Decision(f"one kernel for {len(plan.members)} ops", because)
        if tried:
            return Decision("alone", "no kernel of the target runs it fused with its consumers")
        return Decision("alone", "its consumers cannot be fused with it")

    def reject(self, match: _Match, because: str, tried: Mapping[str, str], context: FusionContext) -> None:
        """Raises UnsupportedOp: no pass is left that could group the op."""
        raise _no_kernel(match.seed, context, [*dict.fromkeys(tried.values())])

    def clean_up(self, context: FusionContext) -> None:
        """Takes out what was copied into all groups that it feeds."""
        for op in reversed(list(context.function.body.block.ops)):
            feeds = is_rematerializable(op) or isinstance(op, logical.ConstantOp)
            if feeds and not any(result.uses for result in op.results):
                op.detach()
                op.erase()


def _no_kernel(op: Operation, context: FusionContext, reasons: Sequence[str]) -> UnsupportedOp:
    """The error that no kernel of the target runs an op, with the way out."""
    is_open = context.policy == KernelPolicy()
    way_out = "choose another target" if is_open else "change the policy or choose another target"
    if (training := op.get_trait(TrainingOnly)) is not None:
        reasons, way_out = [f"{training.replaced_by} replaces it"], "run the pipeline aicf-training"
    return UnsupportedOp(
        f"no kernel of target {context.target.backend.data} runs '{id_of(op)}' ({label_of(op)}): "
        + "; ".join([*reasons, way_out]),
        location=position_of(op),
    )


def label_of(op: Operation) -> str:
    """What an op is, as users call it."""
    return op.label if isinstance(op, logical.CustomOp) else op.name


def _computes(op: Operation) -> bool:
    return (
        isinstance(op, logical.LogicalOp)
        and not is_rematerializable(op)
        and not isinstance(op, logical.ConstantOp)
    )


def _listed(seed: Operation, context: FusionContext) -> Candidate | None:
    """The group with `seed` that the policy lists, in whatever order its ops stand; None if it lists none of loops."""
    members = context.listed_with(seed)
    if len(members) < 2 or not context.policy.fusion.elementwise or not all(map(_has_loops, members)):
        return None
    if (count := result_count(members)) > 1:
        reason = f"{count} of their values have other consumers, and fused loops write one; list those consumers too"
        return Candidate(label(members), None, obstacle=reason)
    plan = outline(members, context.group_id(members), given=context.listed_results)
    return Candidate(label(members), plan)


def _has_loops(op: Operation) -> bool:
    return _is_pointwise(op) or is_rematerializable(op)


def _is_elementwise(op: Operation) -> bool:
    return op.has_trait(logical.Elementwise)


def _is_pointwise(op: Operation) -> bool:
    traits = (logical.Elementwise, logical.Reduction, logical.Scan, logical.IndexedRead)
    return any(op.has_trait(trait) for trait in traits)


def _may_follow(op: Operation, cluster: FusionCandidates) -> bool:
    """Pointwise ops and reductions follow; a view only if it spreads or reshapes a row result inside the cluster, or
    reshapes what the policy lists it with: the reduction may be in another part of that group.

    What reads at computed indices follows if it reads something else: a kernel knows what it computes at the point.
    Windows follow the pad that nothing else reads: they take its operand from memory, too.
    """
    if isinstance(op, logical.WindowOp):
        return (pad := border_of(op)) is not None and pad in cluster.members
    if op.has_trait(logical.IndexedRead) and op.operands[0].owner in cluster.members:
        return False
    if _is_pointwise(op):
        return True
    if not isinstance(op, logical.BroadcastOp | logical.ReshapeOp):
        return False
    return cluster.has_reduction or _is_listed_reshape(op, cluster)


def _is_listed_reshape(op: Operation, cluster: FusionCandidates) -> bool:
    return isinstance(op, logical.ReshapeOp) and cluster.context.are_listed((op, cluster.seeds[0]))
