"""`fuse-prologues`: a row program (layer_norm, rms norm) joins the products that alone read its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.passes.bodies.outlining import Outline, id_of, name_of
from aicf.passes.bodies.products import Product, reads_columns
from aicf.passes.fusion.candidates import POINTWISE_ON_SUMS, FusionCandidates, pointwise_like
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, first_formed, label
from aicf.passes.fusion.forming import FusionContext, left_behind
from aicf.passes.fusion.row_programs import Rows, candidate_after_rows, outline_after_rows, row_programs
from aicf.passes.support.identity import IdTable, copied_id, set_identity, sources, value_hint

Products = Sequence[Product]


@dataclass(frozen=True)
class _Match:
    """Rows that row programs could compute, what reads them, and which of that are products, in text order."""

    rows: OpResult
    programs: Sequence[Rows]
    readers: Sequence[Operation]
    products: Products


@dataclass(frozen=True)
class FuseProloguesPass(FusionPattern[_Match]):
    """Groups a row program with the product that reads its result, and with the pointwise ops after the product.

    A norm after a product is what `fuse-norms` fuses.

    Several products take a copy of the row program each, but only if every reader is a product and a kernel takes each
    of them; else the rows are written for all, as they are for kernels that say what the parts would cost. Only kernels
    that hold all rows of their tile at once take a prologue.
    """

    name = "fuse-prologues"
    stage = "after_views"
    benefit = 40
    switch = "prologue"
    kinds = ("norm_gemm", PACKED_PRODUCTS)

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        products = [op for op in context.function.body.block.ops if isinstance(op, Product)]
        for rows in dict.fromkeys(product.lhs for product in products):
            if not isinstance(rows, OpResult) or rows.op not in context.position:
                continue
            readers = list(dict.fromkeys(use.operation for use in rows.uses))
            readers.sort(key=lambda op: context.position.get(op, -1))
            if programs := list(row_programs(rows, readers, context)):
                reading = [op for op in readers if isinstance(op, Product) and _reads_rows(op, rows)]
                yield _Match(rows, programs, readers, reading)

    def subjects(self, match: _Match) -> Sequence[str]:
        return [id_of(match.rows.op), *map(id_of, match.products)]

    def obstacle(self, match: _Match, context: FusionContext) -> str | None:
        other = next((op for op in match.readers if op not in match.products), None)
        if other is None:
            return None
        return f"{_reads(other)}, so they have to be written to memory in any case"

    def choose(
        self, match: _Match, context: FusionContext, tried: dict[str, str]
    ) -> Iterable[Outline] | None:
        """A group for each product, each with the same row program; None if one of them has none."""
        for rows in match.programs:
            plans: list[Outline] = []
            for product in match.products:
                formed = {op for plan in plans for op in plan.members} - {*rows}
                candidates = _candidates(rows, product, match.products, formed, context)
                if (plan := first_formed(candidates, context, tried)) is None:
                    break
                plans.append(plan)
            else:
                return _with_copies(rows, plans, match.products, context)
        return None

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        because = "its rows are computed where the product reads them, and never written"
        return Decision(f"one kernel for {len(plan.members)} ops", because)


def _reads_rows(product: Product, value: SSAValue) -> bool:
    """Whether the product reads the rows of `value` as its left operand, and nothing else of it."""
    return product.lhs is value and product.rhs is not value and not reads_columns(product)


def _reads(op: Operation) -> str:
    """That an op other than a product of the rows reads them."""
    if isinstance(op, Product):
        return f"'{id_of(op)}' reads the rows as its right operand, or transposed"
    name = name_of(op)
    return "the program returns the rows" if name is None else f"'{name}' reads the rows too"


def _candidates(
    rows: Rows,
    product: Product,
    products: Products,
    formed: Collection[Operation],
    context: FusionContext,
) -> Iterator[Candidate]:
    """One of the products with `rows` before it, and with as many ops after it as there are, then with fewer.

    Where results of products meet, the first product takes along what reads both: `formed` has those ops.
    """
    accept = pointwise_like(product)
    cluster = FusionCandidates([product], context)
    if context.policy.fusion.epilogue:
        cluster.grow(accept, POINTWISE_ON_SUMS)
    cuts: list[Sequence[Operation]] = [*cluster.candidates(accept), (product,)]
    cuts = [cut for cut in cuts if not any(op in formed for op in cut)]
    again = f"each of {len(products)} products would compute the rows again" if len(products) > 1 else None
    # The first product keeps the rows; those of the others will be copies, which policies call by their own ids.
    ids = {row: copied_id(id_of(row), id_of(product)) for row in rows} if product is not products[0] else {}
    for cut in cuts:
        plan = outline_after_rows(rows, cut, [product], context)
        loss = again or left_behind(cuts[0], cut)
        yield candidate_after_rows(label([rows[-1], *cut]), plan, context, loss, ids)


def _with_copies(
    rows: Rows, plans: Sequence[Outline], products: Products, context: FusionContext
) -> Iterator[Outline]:
    """The groups, where all products but the first have got a copy of the rows of their own."""
    copies = [_copy(rows, product, context) for product in products[1:]]
    cuts = [[op for op in plan.members if op not in rows] for plan in plans[1:]]
    yield plans[0]
    for own, cut, product in zip(copies, cuts, products[1:], strict=True):
        yield outline_after_rows(own, cut, [product], context)


def _copy(rows: Rows, product: Product, context: FusionContext) -> Rows:
    """Copies the rows before `product`, and makes the product read the copy."""
    ids = IdTable(context.module)
    values: dict[SSAValue, SSAValue] = {}
    made: list[Operation] = []
    block = context.function.body.block
    for op in rows:
        clone = op.clone(values)
        own = ids.fresh(copied_id(id_of(op), id_of(product)))
        set_identity(clone, own, sources(op))
        clone.results[0].name_hint = value_hint(own)
        block.insert_op_before(clone, product)
        values[op.results[0]] = clone.results[0]
        made.append(clone)
    product.operands[0] = values[product.lhs]
    context.renumber()
    return tuple(made)
