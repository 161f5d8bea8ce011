"""`fuse-horizontal`: equal products of one left operand, side by side, become one kernel (queries, keys and values)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.products import are_alike
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.candidates import POINTWISE_ON_SUMS, FusionCandidates, pointwise_like
from aicf.passes.fusion.forming import (
    NO_GAIN,
    OTHER_GROUPS,
    FusionContext,
    form_group,
    fusion_contexts,
    left_behind,
    refusal,
)
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS

KINDS = ("gemm_multi",)

Cut = tuple[Operation, ...]


@dataclass(frozen=True)
class FuseHorizontalPass(ModulePass):
    """Groups products with one left operand and right operands of one type, with a result each.

    Each product takes the pointwise ops after it along, as many as all of them have alike: a bias each, for instance.
    Products stay apart where one needs another's result. For kernels that say what the parts would cost, products also
    stay apart where the group would leave out an op that is fused with one of them alone.
    """

    name = "fuse-horizontal"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            for products in _side_by_side(context):
                if len(products) > 1:
                    _fuse(products, context)


def _side_by_side(context: FusionContext) -> list[list[logical.MatmulOp]]:
    """Sets of products that one kernel could compute, in text order; those that stay alone beside others are noted."""
    sets: list[list[logical.MatmulOp]] = []
    by_left: dict[SSAValue, list[list[logical.MatmulOp]]] = {}
    behind: dict[logical.MatmulOp, _Behind] = {}
    for op in context.function.body.block.ops:
        if not isinstance(op, logical.MatmulOp):
            continue
        known = by_left.setdefault(op.lhs, [])
        alike = [products for products in known if are_alike(products[0], op)]
        near = [products for products in alike if behind[products[0]].product_before(op) is None]
        if near:
            products = near[0]
        else:
            if known:
                between = behind[alike[0][0]].product_before(op) if alike else None
                _note_apart(known[0][0], op, context, between)
            products = list[logical.MatmulOp]()
            known.append(products)
            sets.append(products)
            behind[op] = _Behind(op)
        if context.may_be_one([*products[:1], op]) and all(op.rhs is not other.rhs for other in products):
            products.append(op)
    return sets


class _Behind:
    """The direct and indirect users of a product; each question follows them further in text order."""

    def __init__(self, first: logical.MatmulOp) -> None:
        self._values: set[SSAValue] = {first.result}
        self._next: Operation | None = first.next_op
        self._product: logical.MatmulOp | None = None

    def product_before(self, second: logical.MatmulOp) -> logical.MatmulOp | None:
        """The first product among them before `second`, which is after the one of the last question.

        The result of `second` would be kept while that product runs, such as what a training step computes again for
        its backward part.
        """
        while self._product is None and self._next is not None and self._next is not second:
            op, self._next = self._next, self._next.next_op
            if any(operand in self._values for operand in op.operands):
                if isinstance(op, logical.MatmulOp):
                    self._product = op
                self._values.update(op.results)
        return self._product


def _note_apart(one: Operation, other: Operation, context: FusionContext, between: Operation | None) -> None:
    because = (
        "they read one left operand, but their right operands or results differ in shape, type or transposition; give "
        "them the same ones to fuse them"
    )
    if between is not None:
        because = (
            f"'{id_of(between)}', a product between them, follows from the first: the second one's result would be "
            f"kept in memory while it runs; compute '{id_of(other)}' before '{id_of(between)}' to fuse them"
        )
    record_decision(context.module, FuseHorizontalPass.name, [id_of(one), id_of(other)], "not fused", because)


def _fuse(products: Sequence[logical.MatmulOp], context: FusionContext) -> None:
    plan: Outline | None = None
    refused: dict[str, str] = {}
    if not context.policy.fusion.horizontal:
        because = "horizontal fusion is off by policy (fusion.horizontal)"
    elif (because := context.why_none_of(KINDS)) is None:
        because = NO_GAIN
        plan = _first_legal(products, context, refused)
    if plan is None:
        ids = [id_of(product) for product in products]
        record_decision(context.module, FuseHorizontalPass.name, ids, "not fused", because, refused)
        return
    subjects = [id_of(member) for member in plan.members]
    group = form_group(plan, context)
    choice = f"one kernel for {len(products)} products, {len(subjects)} ops"
    because = "the left operand is read once, and one launch fills the machine"
    record_decision(
        context.module, FuseHorizontalPass.name, [group.id.data, *subjects], choice, because, refused
    )


def _first_legal(
    products: Sequence[logical.MatmulOp], context: FusionContext, refused: dict[str, str]
) -> Outline | None:
    """The products with the most pointwise ops after each that a kernel takes, and why not with more."""
    choices = [_cuts(product, context) for product in products]
    for cuts in _even_cuts(choices):
        members = sorted((op for cut in cuts for op in cut), key=context.position.__getitem__)
        label = " + ".join(id_of(op) for op in members)
        results = [_result(cut) for cut in cuts]
        if not context.may_be_one(members):
            refused[label] = OTHER_GROUPS
        elif _feeds_itself(members, results, context):
            refused[label] = "one of them reads the result of another, directly or through other ops"
        else:
            plan = outline(members, context.group_id(members), results)
            own = [op for cuts in choices for op in cuts[max(cuts)]]
            if (reason := refusal(plan, context, KINDS, left_behind(own, members))) is None:
                return plan
            refused[label] = reason
    return None


def _cuts(product: logical.MatmulOp, context: FusionContext) -> dict[int, Cut]:
    """A product with the pointwise ops after it, by the number of ops."""
    accept = pointwise_like(product)
    cluster = FusionCandidates([product], context)
    if context.policy.fusion.epilogue:
        cluster.grow(accept, POINTWISE_ON_SUMS)
    return {len(cut): cut for cut in (*cluster.candidates(accept), (product,))}


def _even_cuts(choices: Sequence[dict[int, Cut]]) -> list[list[Cut]]:
    """One cut of each product, all with as many ops, most first."""
    counts = set(choices[0]).intersection(*choices[1:])
    return [[cuts[count] for cuts in choices] for count in sorted(counts, reverse=True)]


def _result(cut: Cut) -> SSAValue:
    """The value of a cut that others read."""
    inside = set(cut)
    return next(
        result
        for op in cut
        for result in op.results
        if any(use.operation not in inside for use in result.uses)
    )


def _feeds_itself(members: Sequence[Operation], results: Sequence[SSAValue], context: FusionContext) -> bool:
    """Whether a member reads a result, at once or through ops that stay outside."""
    inside, behind = set(members), set(results)
    for op in context.function.body.block.ops:
        if any(operand in behind for operand in op.operands):
            if op in inside:
                return True
            behind.update(op.results)
    return False
