"""`fuse-elementwise`: pointwise chains, row reductions and running sums become one kernel; the rest groups of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.traits import TrainingOnly
from aicf.errors import UnsupportedOp
from aicf.passes.bodies.indexed_reads import border_of
from aicf.passes.bodies.outlining import id_of, is_rematerializable
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.candidates import FusionCandidates, result_count
from aicf.passes.fusion.forming import FusionContext, first_legal, form_group, fusion_contexts
from aicf.passes.support.identity import position_of
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.kernel_policy import KernelPolicy


@dataclass(frozen=True)
class FuseElementwisePass(ModulePass):
    """Groups pointwise ops, broadcasts and reductions over the same axes with their consumers, then all that is left.

    A softmax or layer_norm, also one written in primitive ops, becomes one group, and so does a pooling with padding:
    windows in a pad read what is padded, and the pad is not written. The largest set with one result and a legal kernel
    is taken. Raises UnsupportedOp for an op that no kernel of the target runs.
    """

    name = "fuse-elementwise"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            for member in list(context.function.body.block.ops):
                if member.parent is not None and _computes(member):
                    _fuse(member, context)
            _drop_dead_feeders(context.function)


def _no_kernel(op: Operation, context: FusionContext, reasons: Sequence[str]) -> UnsupportedOp:
    """The error that no kernel of the target runs an op, with the way out."""
    is_open = context.policy == KernelPolicy()
    way_out = "choose another target" if is_open else "change the policy or choose another target"
    if (training := op.get_trait(TrainingOnly)) is not None:
        reasons, way_out = [f"{training.replaced_by} replaces it"], "run the pipeline aicf-training"
    return UnsupportedOp(
        f"no kernel of target {context.target.backend.data} runs '{id_of(op)}' ({op.name}): "
        + "; ".join([*reasons, way_out]),
        location=position_of(op),
    )


def _computes(op: Operation) -> bool:
    return (
        isinstance(op, logical.LogicalOp)
        and not is_rematerializable(op)
        and not isinstance(op, logical.ConstantOp)
    )


def _fuse(seed: Operation, context: FusionContext) -> None:
    cluster = FusionCandidates([seed], context)
    if context.policy.fusion.elementwise and _is_pointwise(seed):
        cluster.grow(
            lambda op: _may_follow(op, cluster),
            "only elementwise ops and reductions are fused into one loop nest",
        )
    listed, impossible = _listed(seed, context)
    plan, refused = first_legal(chain(listed, cluster.candidates(_is_elementwise), [(seed,)]), context)
    refused = {**impossible, **refused}
    if plan is None:
        raise _no_kernel(seed, context, [*dict.fromkeys(refused.values())])
    subjects = [id_of(member) for member in plan.members]
    by_kernels = bool(refused)
    refused = cluster.left_out(plan.members, refused)
    group = form_group(plan, context)
    if len(subjects) > 1:
        because = "intermediates stay in registers or a row of cache instead of memory"
        record_decision(
            context.module,
            FuseElementwisePass.name,
            [group.id.data, *subjects],
            f"one kernel for {len(subjects)} ops",
            because,
            refused,
        )
    elif refused:
        because = (
            "no kernel of the target runs it fused with its consumers"
            if by_kernels
            else "its consumers cannot be fused with it"
        )
        record_decision(context.module, FuseElementwisePass.name, subjects, "alone", because, refused)


def _listed(seed: Operation, context: FusionContext) -> tuple[list[tuple[Operation, ...]], dict[str, str]]:
    """The group with `seed` that the policy lists, in whatever order its ops stand; or why it is no group of loops."""
    members = context.listed_with(seed)
    if len(members) < 2 or not context.policy.fusion.elementwise or not all(map(_has_loops, members)):
        return [], {}
    if (count := result_count(members)) == 1:
        return [members], {}
    reason = (
        f"{count} of their values have other consumers, and fused loops write one; list those consumers too"
    )
    return [], {" + ".join(map(id_of, members)): reason}


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


def _drop_dead_feeders(function: func.FuncOp) -> None:
    for op in reversed(list(function.body.block.ops)):
        if (is_rematerializable(op) or isinstance(op, logical.ConstantOp)) and all(
            not r.uses for r in op.results
        ):
            op.detach()
            op.erase()
