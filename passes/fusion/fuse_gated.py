"""`fuse-gated`: two products of one left operand whose results meet become one kernel, as in a SwiGLU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.products import are_alike
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.candidates import MEMBER_LIMIT, POINTWISE_ON_SUMS, FusionCandidates, pointwise_like
from aicf.passes.fusion.forming import (
    NO_GAIN,
    FusionContext,
    form_group,
    fusion_contexts,
    left_behind,
    refusal,
)
from aicf.passes.fusion.prologues import outline_behind_rows, refusal_behind_rows, row_programs
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS

KINDS = ("gemm_gated", "norm_gated")

Pair = tuple[logical.MatmulOp, logical.MatmulOp]


@dataclass(frozen=True)
class FuseGatedPass(ModulePass):
    """Groups two products with one left operand, right operands of one type, and pointwise ops that read both results.

    `silu(x Wg) * (x Wu)` reads x once and writes the product of the two alone. A row program that makes the left
    operand for them only (a layer_norm) joins as the prologue if a kernel takes it. Kernels that say what the parts
    would cost take it only where it is no less.
    """

    name = "fuse-gated"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            reaches: dict[logical.MatmulOp, _Reach] = {}
            for pair in _pairs(context):
                stand = all(product.parent is not None for product in pair)
                if stand and _may_meet(pair, reaches) and _fuse(pair, context):
                    reaches.clear()


def _pairs(context: FusionContext) -> list[Pair]:
    """Products that could be computed together, in text order."""
    by_left: dict[SSAValue, list[logical.MatmulOp]] = {}
    for op in context.function.body.block.ops:
        if isinstance(op, logical.MatmulOp):
            by_left.setdefault(op.lhs, []).append(op)
    return [pair for products in by_left.values() for pair in _pairs_of(products)]


def _pairs_of(products: Sequence[logical.MatmulOp]) -> Iterator[Pair]:
    """Those of one left operand."""
    kinds = [next(each for each in products if are_alike(product, each)) for product in products]
    for index, one in enumerate(products):
        for later, other in enumerate(products[index + 1 :], index + 1):
            if kinds[index] is kinds[later] and one.rhs is not other.rhs:
                yield one, other


def _may_meet(pair: Pair, reaches: dict[logical.MatmulOp, _Reach]) -> bool:
    """Whether one value may come of both products: most of many that read one value never meet."""
    for product in pair:
        if product not in reaches:
            reaches[product] = _Reach.of(product)
    one, other = (reaches[product] for product in pair)
    return one.ends or other.ends or not one.ops.isdisjoint(other.ops)


@dataclass(frozen=True)
class _Reach:
    """How far a cluster that begins with a product can grow at most.

    Attributes:
        ops: Pointwise ops that read it, directly or through others of them.
        ends: Whether nothing reads one of them, or the product: then there is nothing to meet.
    """

    ops: frozenset[Operation]
    ends: bool

    @staticmethod
    def of(product: logical.MatmulOp) -> _Reach:
        accept = pointwise_like(product)
        found: set[Operation] = set()
        latest: list[Operation] = [product]
        ends = False
        for _ in range(MEMBER_LIMIT):
            readers = [{use.operation for result in op.results for use in result.uses} for op in latest]
            ends |= not all(readers)
            latest = [op for op in set[Operation]().union(*readers) if op not in found and accept(op)]
            if not latest:
                break
            found.update(latest)
        return _Reach(frozenset(found), ends)


def _fuse(pair: Pair, context: FusionContext) -> bool:
    """Forms a group if a kernel takes one, and says whether."""
    accept = pointwise_like(pair[0])
    cluster = FusionCandidates(pair, context)
    if context.may_be_one(pair):
        cluster.grow(accept, POINTWISE_ON_SUMS)
    cuts = list(cluster.candidates(accept))
    if not cuts:
        return False
    refused: dict[str, str] = {}
    plan = None
    if not context.policy.fusion.gated:
        because = "gated fusion is off by policy (fusion.gated)"
    elif (because := context.why_none_of(KINDS)) is None:
        because = NO_GAIN
        plan = _first_legal(_plans(cuts, pair, context), cuts[0], context, refused)
    if plan is None:
        record_decision(
            context.module, FuseGatedPass.name, [id_of(op) for op in pair], "not fused", because, refused
        )
        return False
    subjects = [id_of(member) for member in plan.members]
    with_rows = plan.work.work.kind == "norm_gated"
    group = form_group(plan, context)
    because = "the left operand is read once, and only what is made of both products is written"
    if with_rows:
        because += "; its rows are computed on the way in"
    choice = f"one kernel for {len(subjects)} ops"
    record_decision(context.module, FuseGatedPass.name, [group.id.data, *subjects], choice, because, refused)
    return True


def _plans(cuts: Sequence[Sequence[Operation]], pair: Pair, context: FusionContext) -> Iterator[Outline]:
    """The groups to try: with as many ops after and before the products as there are, then with fewer."""
    for cut in cuts:
        if context.policy.fusion.prologue:
            for rows in row_programs(pair[0].lhs, pair, context):
                yield outline_behind_rows(rows, cut, pair, context)
        yield outline(cut, context.group_id(cut))


def _first_legal(
    plans: Iterator[Outline], largest: Sequence[Operation], context: FusionContext, refused: dict[str, str]
) -> Outline | None:
    for plan in plans:
        has_rows = any(op.has_trait(logical.Reduction) for op in plan.members)
        loss = left_behind(largest, plan.members)
        reason = (
            refusal_behind_rows(plan, context, loss) if has_rows else refusal(plan, context, KINDS[:1], loss)
        )
        if reason is None:
            return plan
        refused[" + ".join(id_of(op) for op in plan.members)] = reason
    return None
