"""`fuse-horizontal`: equal products of one left operand, side by side, become one kernel (queries, keys and values)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.passes.bodies.dependents import Dependents
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.products import are_alike
from aicf.passes.fusion.candidates import POINTWISE_ON_SUMS, FusionCandidates, pointwise_like
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import OTHER_GROUPS, FusionContext, left_behind

Products = Sequence[logical.MatmulOp]

Cut = tuple[Operation, ...]


@dataclass(frozen=True)
class FuseHorizontalPass(FusionPattern[Products]):
    """Groups products with one left operand and right operands of one type, with a result each.

    Each product takes the pointwise ops after it along, as many as all of them have alike: a bias each, for instance.
    Products stay apart where one needs another's result. For kernels that say what the parts would cost, products also
    stay apart where the group would leave out an op that is fused with one of them alone.
    """

    name = "fuse-horizontal"
    stage = "after_views"
    benefit = 50
    switch = "horizontal"
    kinds = ("gemm_multi",)

    def matches(self, context: FusionContext) -> Iterator[Products]:
        yield from (products for products in self._side_by_side(context) if len(products) > 1)

    def subjects(self, match: Products) -> Sequence[str]:
        return [id_of(product) for product in match]

    def candidates(self, match: Products, context: FusionContext) -> Iterator[Candidate]:
        """The products with the most pointwise ops after each, then with fewer."""
        choices = [_cuts(product, context) for product in match]
        own = [op for cuts in choices for op in cuts[max(cuts)]]
        for cuts in _even_cuts(choices):
            members = sorted((op for cut in cuts for op in cut), key=context.position.__getitem__)
            results = [_result(cut) for cut in cuts]
            if not context.may_be_one(members):
                yield Candidate(label(members), None, obstacle=OTHER_GROUPS)
            elif _feeds_itself(members, results):
                yield Candidate(label(members), None, obstacle=_FEEDS_ITSELF)
            else:
                plan = outline(members, context.group_id(members), results)
                yield Candidate(label(members), plan, self.kinds, left_behind(own, members))

    def decision(self, match: Products, plan: Outline, tried: Mapping[str, str]) -> Decision:
        return Decision(
            f"one kernel for {len(match)} products, {len(plan.members)} ops",
            "the left operand is read once, and one launch fills the machine",
        )

    def _side_by_side(self, context: FusionContext) -> list[list[logical.MatmulOp]]:
        """Sets of products that one kernel could compute, in text order; those that stay alone beside others are
        noted."""
        sets: list[list[logical.MatmulOp]] = []
        by_left: dict[SSAValue, list[list[logical.MatmulOp]]] = {}
        dependences: dict[logical.MatmulOp, Dependents] = {}
        for op in context.function.body.block.ops:
            if not isinstance(op, logical.MatmulOp):
                continue
            known = by_left.setdefault(op.lhs, [])
            alike = [products for products in known if are_alike(products[0], op)]
            near = [products for products in alike if dependences[products[0]].contraction_before(op) is None]
            if near:
                products = near[0]
            else:
                if known:
                    between = dependences[alike[0][0]].contraction_before(op) if alike else None
                    because = _why_apart(op, between)
                    subjects = [id_of(known[0][0]), id_of(op)]
                    self.record(context, subjects, Decision("not fused", because))
                products = list[logical.MatmulOp]()
                known.append(products)
                sets.append(products)
                dependences[op] = Dependents(op)
            if context.may_be_one([*products[:1], op]) and all(op.rhs is not other.rhs for other in products):
                products.append(op)
        return sets


_FEEDS_ITSELF = "one of them reads the result of another, directly or through other ops"


def _why_apart(second: Operation, between: Operation | None) -> str:
    """Why `second` is not fused with products of its left operand.

    Args:
        between: A product that follows from the first of them.
    """
    if between is None:
        return (
            "they read one left operand, but their right operands or results differ in shape, type or transposition; "
            "give them the same ones to fuse them"
        )
    return (
        f"'{id_of(between)}', a product between them, follows from the first: the second one's result would be "
        f"kept in memory while it runs; compute '{id_of(second)}' before '{id_of(between)}' to fuse them"
    )


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


def _feeds_itself(members: Sequence[Operation], results: Sequence[SSAValue]) -> bool:
    """Whether a member, of several in text order, reads a result, at once or through ops that stay outside."""
    inside, dependents = set(members), set(results)
    op: Operation | None = members[0]
    while (
        op is not None and op is not members[-1].next_op
    ):  # nothing before or after them can be on such a way
        if any(operand in dependents for operand in op.operands):
            if op in inside:
                return True
            dependents.update(op.results)
        op = op.next_op
    return False
