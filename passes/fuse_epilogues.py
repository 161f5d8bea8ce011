"""`fuse-epilogues`: pointwise ops behind a matmul join it, so that its result is written once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.passes.support.clusters import POINTWISE_ON_SUMS, Cluster, pointwise_like
from aicf.passes.support.fusion import FusionContext, first_legal, form_group, fusion_contexts
from aicf.passes.support.ledger import record
from aicf.passes.support.outlining import id_of
from aicf.passes.support.work import target_of


@dataclass(frozen=True)
class FuseEpiloguesPass(ModulePass):
    """Groups each matmul with the pointwise ops that follow it: bias, activation, residual, any scalar program.

    The largest set with one result for which the target has a legal kernel is taken; larger ones are recorded with
    the reason. A matmul whose epilogue no kernel takes becomes a group of one.
    """

    name = "fuse-epilogues"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            for matmul in list(context.function.body.block.ops):
                if isinstance(matmul, logical.MatmulOp):
                    _fuse(matmul, context)


def _fuse(matmul: logical.MatmulOp, context: FusionContext) -> None:
    accept = pointwise_like(matmul)
    cluster = Cluster([matmul], context)
    if context.policy.fusion.epilogue:
        cluster.grow(accept, POINTWISE_ON_SUMS)
    plan, refused = first_legal(chain(cluster.candidates(accept), [(matmul,)]), context)
    if plan is None:
        return
    subjects = [id_of(member) for member in plan.members]
    because_of_kernels = bool(refused)
    refused = cluster.left_out(plan.members, refused)
    group = form_group(plan, context)
    if len(subjects) > 1:
        choice = f"one kernel for {len(subjects)} ops"
        because = (
            "the pointwise ops run on the accumulator, so the product is written once and never read back"
        )
    else:
        choice, because = "alone", _why_alone(context, len(cluster.members), because_of_kernels)
    record(context.module, FuseEpiloguesPass.name, [group.id.data, *subjects], choice, because, refused)


def _why_alone(context: FusionContext, members: int, refused: bool) -> str:
    if not context.policy.fusion.epilogue:
        return "epilogue fusion is off by policy"
    if refused:
        return "no kernel of the target takes the epilogue"
    if members > 1:
        return "the pointwise ops behind it have more than one result that others read"
    return "nothing pointwise reads it alone"
