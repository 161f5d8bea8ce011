"""`lower-convolutions`: convolutions that no kernel of the target takes become products of windows."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.passes.materialize_views import copy_name
from aicf.passes.support.fusion import FusionContext, form_group, fusion_contexts, refusal
from aicf.passes.support.greedy import PatternTable, apply_patterns
from aicf.passes.support.identity import IdTable
from aicf.passes.support.ledger import record
from aicf.passes.support.lowerings import lowerings
from aicf.passes.support.lowerings.base import LowerBy, Lowering
from aicf.passes.support.outlining import id_of, outline
from aicf.passes.support.views import VIEW_OPS
from aicf.passes.support.work import TARGET_ATTR, target_of
from aicf.passes.support.works_on import FUNCTIONS

KINDS = ("conv",)


@dataclass(frozen=True)
class LowerConvolutionsPass(ModulePass):
    """Writes the formula of each `logical.conv` that kernels of the target refuse; the ledger has their reasons. A
    weight that is seen through views is copied where kernels then take it.

    `lower-logical` leaves convolutions to this pass where the target has kernels for some. What is left here is one
    instruction later, with what is pointwise behind it.
    """

    name = "lower-convolutions"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        refused = {
            conv
            for context in fusion_contexts(op, target_of(op), grouped=True)
            for conv in list(context.function.body.block.ops)
            if isinstance(conv, logical.ConvOp) and not _has_kernel(conv, context)
        }
        if not refused:
            return
        patterns = lowerings(IdTable(op))
        formulas = tuple(_Only(frozenset(refused), each) for each in patterns[logical.ConvOp])
        apply_patterns(op, {logical.ConvOp: formulas, logical.MatmulOp: patterns[logical.MatmulOp]})


def _has_kernel(conv: logical.ConvOp, context: FusionContext) -> bool:
    reason = refusal(outline([conv], id_of(conv), [conv.result]), context, KINDS)
    if reason is None or _copies_weight(conv, context):
        return True
    record(context.module, LowerConvolutionsPass.name, [id_of(conv)], "as a product of windows", reason)
    return False


def _copies_weight(conv: logical.ConvOp, context: FusionContext) -> bool:
    """Copies a weight that is seen through views, if kernels take it when it lies in one piece."""
    view = conv.weight.owner
    if not isinstance(view, VIEW_OPS):
        return False
    if refusal(outline([conv], id_of(conv), [conv.result], [view]), context, KINDS) is not None:
        return False
    # A reshape that strides cannot express is free behind the copy of what it reshapes.
    while isinstance(view, VIEW_OPS):
        plan = outline([view], copy_name(view, context), view.results)
        if refusal(plan, context) is None:
            group = form_group(plan, context)
            because = f"'{id_of(conv)}' takes its weight in one piece"
            record(context.module, LowerConvolutionsPass.name, [group.id.data], "copy", because)
            return True
        view = view.operands[0].owner
    return False


@dataclass(frozen=True)
class _Only(RewritePattern):
    """A pattern for some ops alone."""

    ops: frozenset[Operation]
    pattern: RewritePattern

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if op in self.ops:
            self.pattern.match_and_rewrite(op, rewriter)


def has_kernels(module: ModuleOp) -> bool:
    """Whether the target of a module, if it has one, has kernels for convolutions."""
    if TARGET_ATTR not in module.attributes:
        return False
    kernels = get_kernels(target_of(module).backend.data).values()
    return any(kind in kernel.kinds for kernel in kernels for kind in KINDS)


def bias_apart(ids: IdTable) -> PatternTable:
    """Convolutions without their bias, which is added behind: what `lower-logical` leaves of them."""
    return {logical.ConvOp: (LowerBy(_bias_apart, ids),)}


def _bias_apart(lower: Lowering, op: logical.ConvOp) -> SSAValue | None:
    if op.bias is None:
        return None
    plain = logical.ConvOp(
        op.operand,
        op.weight,
        strides=int_values(op.strides),
        low=int_values(op.low),
        high=int_values(op.high),
        dilations=int_values(op.dilations),
        groups=op.groups.value.data,
        widening=op.widening is not None,
    )
    sums = lower.add(plain, "sums")
    bias = lower.broadcast(op.bias, [1], op.info.sizes, "bias.broadcast")
    return lower.add(logical.AddOp(sums, bias), "bias")
