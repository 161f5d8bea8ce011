"""`legalize-for-target`: ops that no kernel of the target runs as an instruction of their own are expanded.

The table is `legalize/expansions`, a file a family: MLIR's conversion target, asked of the kernels.

One position serves all ops that some kernel of the target might run: after `narrow-products`, which writes products of
short integers, after `prepare-parameters`, which settles what is a weight, and before the passes that fuse. An op whose
kinds the target has no kernel for at all is expanded earlier, by `lower-logical`, so that its parts are simplified and
folded with the rest of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.dialects.logical import LogicalOp
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.views import is_view
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.forming import FusionContext, form_group, fusion_contexts, refusal
from aicf.passes.layout.materialize_views import copy_name
from aicf.passes.legalize.expansions import EXPANSIONS, OpExpansion
from aicf.passes.legalize.lower_logical import target_lowerings
from aicf.passes.logical.lowerings.base import LowerBy
from aicf.passes.support.greedy import PatternTable
from aicf.passes.support.identity import IdTable
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LegalizeForTargetPass(ModulePass):
    """Replaces each op of the table that kernels of the target refuse by its formula; the ledger has their reasons.

    Convolutions become products of windows, poolings reductions of windows, products of short integers products of
    i32, recurrent layers the ops of each step. An operand that is seen through views is copied where kernels then run
    the op as it is.
    """

    name = "legalize-for-target"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), grouped=True):
            _legalize(context)


def _legalize(context: FusionContext) -> None:
    """What a formula writes is checked in turn: the product of a convolution may be one of short integers."""
    new = list(context.function.body.block.ops)
    while refused := [(op, row) for op in new if (row := _refused(op, context)) is not None]:
        ids = IdTable(context.module)
        lowerings = target_lowerings(context.module, ids)
        new = [part for op, row in refused for part in _expanded(op, (LowerBy(row.formula, ids),), lowerings)]
        context.renumber()


def _refused(op: Operation, context: FusionContext) -> OpExpansion | None:
    """The expansion of an op that has to be replaced; None for an op that stays."""
    row = EXPANSIONS.get(type(op)) if isinstance(op, LogicalOp) else None
    if row is None or not row.is_requested(op):
        return None
    reason = _reason(op, row, context)
    if reason is None or _copies_views(op, row, context) or not row.has_formula(op):
        return None
    record_decision(context.module, LegalizeForTargetPass.name, [id_of(op)], row.choice, reason)
    return row


def _reason(
    op: Operation, row: OpExpansion, context: FusionContext, copied: Sequence[Operation] = ()
) -> str | None:
    """Why no kernel of the target runs the op where the results of the views `copied` lie in one piece; None if one
    does."""
    return refusal(outline([op], id_of(op), op.results, copied), context, row.kinds)


def _copies_views(op: Operation, row: OpExpansion, context: FusionContext) -> bool:
    """Copies operands that are seen through views, if kernels run the op when these lie in one piece; no more of them
    than that takes."""
    copied = op.operands if row.copied is None else [op.operands[index] for index in row.copied]
    owners = (operand.owner for operand in copied)
    views = list(dict.fromkeys(owner for owner in owners if is_view(owner)))
    if _reason(op, row, context, views) is not None:
        return False
    for view in list(views):
        others = [other for other in views if other is not view]
        if _reason(op, row, context, others) is None:
            views = others
    sources = [_copyable(view, context) for view in views]
    if None in sources:
        return False
    for view in dict.fromkeys(filter(None, sources)):
        group = form_group(_copy_of(view, context), context)
        because = f"'{id_of(op)}' reads this operand in one piece"
        record_decision(context.module, LegalizeForTargetPass.name, [group.id.data], "copy", because)
    return True


def _copyable(view: Operation, context: FusionContext) -> Operation | None:
    """A view that a kernel copies, or the nearest one before it: a reshape of that copy is free."""
    current: Operation | Block = view
    while is_view(current):
        if refusal(_copy_of(current, context), context) is None:
            return current
        current = current.operands[0].owner
    return None


def _copy_of(view: Operation, context: FusionContext) -> Outline:
    return outline([view], copy_name(view, context), view.results)


def _expanded(op: Operation, patterns: Sequence[RewritePattern], lowerings: PatternTable) -> list[Operation]:
    """The ops that replace one: those of the first pattern that matches, composites among them lowered as well."""
    for pattern in patterns:
        written: list[Operation] = []
        rewriter = PatternRewriter(op)
        rewriter.operation_insertion_handler.append(written.append)
        pattern.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action:
            return [
                part for each in written for part in _expanded(each, lowerings.get(type(each), ()), lowerings)
            ]
    return [op]
