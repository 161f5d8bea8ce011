"""`lower-poolings`: poolings that no kernel of the target takes become reductions of windows."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.passes.support.fusion import FusionContext, fusion_contexts, refusal
from aicf.passes.support.greedy import PatternTable, apply_patterns
from aicf.passes.support.identity import IdTable
from aicf.passes.support.ledger import record
from aicf.passes.support.lowerings import lowerings
from aicf.passes.support.outlining import id_of, outline
from aicf.passes.support.work import TARGET_ATTR, target_of
from aicf.passes.support.works_on import FUNCTIONS

KIND = "pool"
POOLINGS = (logical.MaxPoolOp, logical.AvgPoolOp)
"""What kernels of the kind take as one instruction."""


@dataclass(frozen=True)
class LowerPoolingsPass(ModulePass):
    """Writes the formula of each pooling that kernels of the target refuse; the ledger has their reasons.

    `lower-logical` leaves poolings to this pass where the target has kernels for some.
    """

    name = "lower-poolings"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        refused: set[Operation] = {
            pooling
            for context in fusion_contexts(op, target_of(op), grouped=True)
            for pooling in context.function.body.block.ops
            if isinstance(pooling, POOLINGS) and not _has_kernel(pooling, context)
        }
        if refused:
            patterns = lowerings(IdTable(op))
            formulas: PatternTable = {
                each: tuple(_Only(frozenset(refused), pattern) for pattern in patterns[each])
                for each in POOLINGS
            }
            apply_patterns(op, formulas)


def _has_kernel(pooling: logical.PoolOp, context: FusionContext) -> bool:
    reason = refusal(outline([pooling], id_of(pooling), [pooling.result]), context, (KIND,))
    if reason is not None:
        record(context.module, LowerPoolingsPass.name, [id_of(pooling)], "as a reduction of windows", reason)
    return reason is None


@dataclass(frozen=True)
class _Only(RewritePattern):
    """A pattern for some ops alone."""

    ops: frozenset[Operation]
    pattern: RewritePattern

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if op in self.ops:
            self.pattern.match_and_rewrite(op, rewriter)


def without_poolings(module: ModuleOp, patterns: PatternTable) -> PatternTable:
    """The patterns of `lower-logical`, but for poolings where the target of the module has kernels of the kind."""
    if TARGET_ATTR not in module.attributes:
        return patterns
    kernels = get_kernels(target_of(module).backend.data).values()
    if not any(KIND in kernel.kinds for kernel in kernels):
        return patterns
    return {op: rules for op, rules in patterns.items() if op not in POOLINGS}
