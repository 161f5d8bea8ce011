"""Products of integers less zero points become products of the integers as they are stored, where that pays.

Models that quantise at run time multiply 8-bit integers less a zero point, which takes i16. Both ways are exact, so
what is chosen changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.passes.bodies.outlining import id_of
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.legalize.dequantised import Centred, centred
from aicf.passes.legalize.narrow_prices import NoKernel, ProductPrices
from aicf.passes.legalize.zero_points import Correction, is_one_number
from aicf.passes.logical.lowerings.base import LowerBy, Lowering
from aicf.passes.support.identity import IdTable, derived_id
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import without_bucket

INTEGERS = "integers"
"""The name of the widening product of an op, after the id of the op."""


def reads_as_stored(own: Centred, other: Centred, prices: ProductPrices) -> bool:
    """Whether a product may read a factor as it is stored: what its one zero point adds to the sums follows from the
    other factor ahead of the first run."""
    is_uniform = own.zero is not None and is_one_number(own.zero)
    return is_uniform and prices.is_prepared(other.value) and not prices.is_prepared(own.value)


def is_listed(op: Operation, context: FusionContext) -> bool | None:
    """Whether the policy lists the product as one of integers, or as it stands; None if it says neither."""
    own = id_of(op)
    for name, is_narrow in ((derived_id(own, INTEGERS), True), (own, False)):
        if name in context.pinned or without_bucket(name) in context.pinned:
            return is_narrow
    return None


def uncentre_products(context: FusionContext, made_by: str) -> None:
    """Rewrites matmuls that widen; the ledger has the times of both ways as decisions of the pass `made_by`."""
    prices = ProductPrices(context.module, context)
    found = list(_products(context.function.body.block.ops, prices))
    chosen = [each for each in found if _is_chosen(each, prices, context, made_by)]
    ids = IdTable(context.module) if chosen else None
    for each in chosen:
        assert ids is not None
        LowerBy(each.formula, ids).match_and_rewrite(each.op, PatternRewriter(each.op))


@dataclass(frozen=True)
class _Uncentred:
    """A product one factor of which has a zero point.

    Args:
        factors: What both stand for.
        number: Of the factor that may be read as it is stored.
    """

    op: logical.MatmulOp
    factors: tuple[Centred, Centred]
    number: int

    @property
    def as_stored(self) -> tuple[Centred, Centred]:
        """The factors, that one as it is stored."""
        lhs, rhs = self.factors
        return (lhs.as_stored, rhs) if self.number == 0 else (lhs, rhs.as_stored)

    @property
    def corrections(self) -> tuple[Correction | None, Correction | None]:
        """What the factor's zero point adds to the sums, in its place."""
        zero = self.factors[self.number].zero
        assert zero is not None
        own = Correction.of(self.op, zero, 1 - self.number)
        return (own, None) if self.number == 0 else (None, own)

    def widening(self, lhs: SSAValue, rhs: SSAValue) -> LogicalOp:
        """The product of other factors."""
        return self.op.of_operands(lhs, rhs, widening=True)

    def formula(self, lower: Lowering, _: LogicalOp) -> SSAValue:
        """Sums of the integers as they are stored, less what the zero point adds."""
        values = list(self.op.operands)
        values[self.number] = self.factors[self.number].stored
        sums = lower.add(self.widening(*values), INTEGERS)
        correction = self.corrections[self.number]
        assert correction is not None
        excess = correction.excess(lower, values[1 - self.number], f"{INTEGERS}.excess")
        return correction.taken_off(lower, sums, excess, "")


def _products(ops: Iterable[Operation], prices: ProductPrices) -> Iterator[_Uncentred]:
    for op in ops:
        if not isinstance(op, logical.MatmulOp) or op.widening is None:
            continue
        lhs, rhs = (centred(value) for value in op.operands)
        if lhs is None or rhs is None:
            continue
        for number, (own, other) in enumerate(((lhs, rhs), (rhs, lhs))):
            if reads_as_stored(own, other, prices):
                yield _Uncentred(op, (lhs, rhs), number)
                break


def _is_chosen(product: _Uncentred, prices: ProductPrices, context: FusionContext, made_by: str) -> bool:
    """Whether the factor is to be read as it is stored; notes why or why not."""
    try:
        narrow = prices.narrow(product.widening, product.as_stored, None, product.corrections)
        wide = prices.narrow(product.widening, product.factors, None, ())
    except NoKernel:
        # `legalize-for-target` expands such a product, or says what is wrong with it.
        return False
    wanted = is_listed(product.op, context)
    is_chosen = narrow < wide if wanted is None else wanted
    names = [[each.element.name for each in way] for way in (product.as_stored, product.factors)]
    because = (
        f"predicted {narrow:.3g} us as they are stored and {wide:.3g} us less the zero point"
        if wanted is None
        else "the policy lists it so"
    )
    record_decision(
        context.module,
        made_by,
        [id_of(product.op)],
        f"of integers: {' and '.join(names[0] if is_chosen else names[1])}",
        because,
        cost={"narrow_us": microseconds(narrow), "wide_us": microseconds(wide)},
    )
    return is_chosen
