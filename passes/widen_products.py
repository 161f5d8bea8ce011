"""`widen-products`: widening products that no kernel of the target takes become products of i32."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.passes.support.fusion import FusionContext, fusion_contexts, refusal
from aicf.passes.support.identity import IdTable
from aicf.passes.support.ledger import record
from aicf.passes.support.lowerings.base import LowerBy, Lowering
from aicf.passes.support.outlining import id_of, outline
from aicf.passes.support.work import target_of
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class WidenProductsPass(ModulePass):
    """Casts the operands of each widening `logical.matmul` that kernels of the target refuse; the ledger has their
    reasons. What the casts feed is a product of i32, which wraps around to the same sums."""

    name = "widen-products"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        refused = [
            matmul
            for context in fusion_contexts(op, target_of(op), grouped=True)
            for matmul in list(context.function.body.block.ops)
            if isinstance(matmul, logical.MatmulOp) and matmul.widening and not _has_kernel(matmul, context)
        ]
        if refused:
            pattern = LowerBy(_cast_first, IdTable(op))
            for matmul in refused:
                pattern.match_and_rewrite(matmul, PatternRewriter(matmul))


def _has_kernel(matmul: logical.MatmulOp, context: FusionContext) -> bool:
    reason = refusal(outline([matmul], id_of(matmul), [matmul.result]), context, ("gemm",))
    if reason is not None:
        record(context.module, WidenProductsPass.name, [id_of(matmul)], "as a product of i32", reason)
    return reason is None


def _cast_first(lower: Lowering, op: logical.MatmulOp) -> SSAValue:
    element = op.info.element
    lhs, rhs = (
        lower.cast(value, element, name) for value, name in ((op.lhs, "lhs.wide"), (op.rhs, "rhs.wide"))
    )
    flags = {"transpose_a": op.transpose_a is not None, "transpose_b": op.transpose_b is not None}
    return lower.add(logical.MatmulOp(lhs, rhs, **flags), "")
