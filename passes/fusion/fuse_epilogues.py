"""`fuse-epilogues`: pointwise ops, or a copy, after a product or convolution join it, so that it is written once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.passes.bodies.matching import only_reader
from aicf.passes.bodies.outlining import id_of, outline
from aicf.passes.bodies.views import is_rearrangement, view_after
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.candidates import POINTWISE_ON_SUMS, FusionCandidates, Product, pointwise_like
from aicf.passes.fusion.forming import FusionContext, first_legal, form_group, fusion_contexts, refusal
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import without_bucket
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class FuseEpiloguesPass(ModulePass):
    """Groups each matmul and convolution with the pointwise ops that follow it: bias, activation, any scalar program.

    The largest set with one result for which the target has a legal kernel is taken; larger ones are recorded with
    the reason. A matmul whose epilogue no kernel takes becomes a group of one, but with what transposes its rows where
    that would be a copy of its own: then its kernel writes each row where it belongs.
    """

    name = "fuse-epilogues"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            for matmul in list(context.function.body.block.ops):
                if isinstance(matmul, Product):
                    _fuse(matmul, context)


def _fuse(matmul: Product, context: FusionContext) -> None:
    accept = pointwise_like(matmul)
    cluster = FusionCandidates([matmul], context)
    if context.policy.fusion.epilogue:
        cluster.grow(accept, POINTWISE_ON_SUMS)
    plan, refused = first_legal(chain(cluster.candidates(accept), [(matmul,)]), context)
    if plan is None:
        return
    copy = _copy_behind(matmul, context) if plan.members == (matmul,) else None
    if copy is not None and _take_copy(matmul, copy, context):
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
    record_decision(
        context.module, FuseEpiloguesPass.name, [group.id.data, *subjects], choice, because, refused
    )


def _copy_behind(matmul: Product, context: FusionContext) -> GroupOp | None:
    """The instruction that only moves whole rows of a product, and is all that reads it."""
    reader = only_reader(matmul.result) if isinstance(matmul, logical.MatmulOp) else None
    if not context.policy.fusion.epilogue or not isinstance(reader, GroupOp):
        return None
    id_ = reader.id.data
    if any(name in context.policy.kernels for name in (id_, without_bucket(id_), "copy")):
        return None
    *moves, _ = reader.body.block.ops
    if not moves or not all(is_rearrangement(op) for op in moves):
        return None
    view = view_after(moves)
    return reader if view is not None and view.strides[-1] == 1 else None


def _take_copy(matmul: Product, copy: GroupOp, context: FusionContext) -> bool:
    """Makes the product and `copy` one group if a kernel writes the result with the strides that it has then."""
    moves = _moves_in_function(matmul, copy)
    members = (matmul, *moves)
    plan = outline(members, context.group_id(members), [moves[-1].results[0]])
    listed = [op for op in moves if context.are_listed([op])]  # what only feeds, a policy need not list
    if not context.may_be_one([matmul, *listed]) or refusal(plan, context, ("gemm",)) is not None:
        for op in reversed(moves):
            op.detach()
            op.erase()
        return False
    # The body no longer has the views after the product, so its value takes the product's name.
    plan.results[0].name_hint = matmul.result.name_hint
    subjects = [id_of(member) for member in members]
    context.position |= dict.fromkeys(moves, context.position[matmul])
    copy.results[0].replace_all_uses_with(moves[-1].results[0])
    context.function.body.block.erase_op(copy)
    del context.position[copy]
    group = form_group(plan, context)
    because = "its rows are written where the copy would put them, so no copy runs"
    record_decision(
        context.module,
        FuseEpiloguesPass.name,
        [group.id.data, *subjects],
        "one kernel with the copy",
        because,
    )
    return True


def _moves_in_function(matmul: Product, copy: GroupOp) -> list[Operation]:
    """Clones the ops of `copy` into the function, after the product."""
    block = matmul.parent
    assert block is not None
    value: SSAValue = matmul.result
    last: Operation = matmul
    moves: list[Operation] = []
    for op in list(copy.body.block.ops)[:-1]:
        clone = op.clone({op.operands[0]: value})
        block.insert_op_after(clone, last)
        moves.append(clone)
        value, last = clone.results[0], clone
    return moves


def _why_alone(context: FusionContext, members: int, refused: bool) -> str:
    if not context.policy.fusion.epilogue:
        return "epilogue fusion is off by policy (fusion.epilogue)"
    if refused:
        return "no kernel of the target runs it with the elementwise ops after it as an epilogue"
    if members > 1:
        return "the elementwise ops after it have several results with other consumers, and an epilogue writes one"
    return "no elementwise op is its only consumer"
