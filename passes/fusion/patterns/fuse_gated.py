"""`fuse-gated`: two products of one left operand whose results meet become one kernel, as in a SwiGLU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.products import Product, are_alike
from aicf.passes.fusion.candidates import MEMBER_LIMIT, POINTWISE_ON_SUMS, FusionCandidates, pointwise_like
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import FusionContext, left_behind
from aicf.passes.fusion.row_programs import candidate_after_rows, outline_after_rows, row_programs

Pair = tuple[Product, Product]


@dataclass(frozen=True)
class _Match:
    """Two products, and the sets of ops that read both and may be one instruction with them, largest first."""

    pair: Pair
    cuts: Sequence[tuple[Operation, ...]]


@dataclass(frozen=True)
class FuseGatedPass(FusionPattern[_Match]):
    """Groups two products with one left operand, right operands of one type, and pointwise ops that read both results.

    `silu(x Wg) * (x Wu)` reads x once and writes the product of the two alone. A row program that makes the left
    operand for them only (a layer_norm) joins as the prologue if a kernel takes it. Kernels that say what the parts
    would cost take it only where it is no less.
    """

    name = "fuse-gated"
    stage = "after_views"
    benefit = 60
    switch = "gated"
    kinds = ("gemm_gated", "norm_gated", PACKED_PRODUCTS)

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        reaches: dict[Product, _Reach] = {}
        for pair in _pairs(context):
            stand = all(product.parent is not None for product in pair)
            if stand and _may_meet(pair, reaches) and (cuts := _cuts(pair, context)):
                yield _Match(pair, cuts)
                if pair[0].parent is None:  # fused: what others reach has changed
                    reaches.clear()

    def subjects(self, match: _Match) -> Sequence[str]:
        return [id_of(op) for op in match.pair]

    def candidates(self, match: _Match, context: FusionContext) -> Iterator[Candidate]:
        """The groups to try: with as many ops after and before the products as there are, then with fewer."""
        for cut in match.cuts:
            if context.policy.fusion.prologue:
                for rows in row_programs(match.pair[0].lhs, match.pair, context):
                    plan = outline_after_rows(rows, cut, match.pair, context)
                    loss = left_behind(match.cuts[0], plan.members)
                    yield candidate_after_rows(label(plan.members), plan, context, loss)
            plan = outline(cut, context.group_id(cut))
            yield Candidate(
                label(cut), plan, ("gemm_gated", PACKED_PRODUCTS), left_behind(match.cuts[0], cut)
            )

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        because = "the left operand is read once, and only what is made of both products is written"
        if plan.work.work.prologue is not None:
            because += "; its rows are computed on the way in"
        return Decision(f"one kernel for {len(plan.members)} ops", because)


def _cuts(pair: Pair, context: FusionContext) -> list[tuple[Operation, ...]]:
    """The sets of ops that hold both products and have one result, largest first."""
    accept = pointwise_like(pair[0])
    cluster = FusionCandidates(pair, context)
    if context.may_be_one(pair):
        cluster.grow(accept, POINTWISE_ON_SUMS)
    return list(cluster.candidates(accept))


def _pairs(context: FusionContext) -> list[Pair]:
    """Products that could be computed together, in text order."""
    by_left: dict[SSAValue, list[Product]] = {}
    for op in context.function.body.block.ops:
        if isinstance(op, Product):
            by_left.setdefault(op.lhs, []).append(op)
    return [pair for products in by_left.values() for pair in _pairs_of(products)]


def _pairs_of(products: Sequence[Product]) -> Iterator[Pair]:
    """Those of one left operand."""
    kinds = [next(each for each in products if are_alike(product, each)) for product in products]
    for index, one in enumerate(products):
        for later, other in enumerate(products[index + 1 :], index + 1):
            if kinds[index] is kinds[later] and one.rhs is not other.rhs:
                yield one, other


def _may_meet(pair: Pair, reaches: dict[Product, _Reach]) -> bool:
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
    def of(product: Product) -> _Reach:
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
