"""`narrow-products`: products of dequantised tensors become products of what is stored, where that pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, symbols
from aicf.dialects.logical import LogicalOp
from aicf.passes.bodies.attention import NoAttention, attention_ending_in
from aicf.passes.bodies.outlining import id_of
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.forming import FusionContext, fusion_contexts
from aicf.passes.legalize.dequantised import F32, Dequantised, Scale, joint
from aicf.passes.legalize.narrow_prices import NoKernel, ProductPrices
from aicf.passes.legalize.quantised_pools import use_integers
from aicf.passes.legalize.quantised_products import Product, products_among, ways_of
from aicf.passes.legalize.uncentred import INTEGERS, is_listed, uncentre_products
from aicf.passes.logical.lowerings.base import LowerBy, Lowering
from aicf.passes.support.identity import IdTable
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.kernel_policy import BATCH_INVARIANT

WIDE = "in f32"
"""What the ledger says of a product of dequantised tensors that stays one."""


@dataclass(frozen=True)
class NarrowProductsPass(ModulePass):
    """Rewrites each f32 matmul or convolution whose operands both are `(stored - zero point) * scale` into a widening
    one of the integers, cast to f32, times the scales.

    A scale is one number, or one for each row or column of the product, or output channel. The integers stay as they
    are stored where zero points are 0. So do those of a factor with one zero point, where the other factor follows from
    parameters: what the zero point adds to the sums then does so too, and is taken off them. A convolution pads such an
    operand with its zero point. Else the integers are i16, less their zero points. Matmuls of such integers that widen
    already are treated alike.

    Floats of 8 bits are treated alike: they have no zero points, and their sums are f32. Nothing convolves them.

    Sums of integers have to fit into i32 whatever is stored. Sums of either are no sums of f32, so results round
    otherwise: a policy of `strict` rounding, or of results that no batch may change, keeps f32. Else it is a matter of
    predicted time, or of which ops the policy lists; the ledger has both times. What else reads a dequantised tensor
    goes on to do so.

    Where a product is quantised itself, its scale and bias are divided by the step ahead of time. The largest elements
    of windows are those of the stored integers, and integers that are quantised again as they were stay as they are:
    these two rewrites are exact, whatever the policy says.
    """

    name = "narrow-products"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if PREPARE in symbols(op):
            return
        for context in fusion_contexts(op, target_of(op), grouped=True):
            uncentre_products(context, self.name)
            use_integers(list(context.function.body.block.ops), IdTable(context.module))
            if found := list(products_among(context.function.body.block.ops)):
                _narrow_all(found, context)


def _narrow_all(found: Sequence[Product], context: FusionContext) -> None:
    prices, kept = ProductPrices(context.module, context), _attention_scores(context)
    ways = (_chosen(each, kept, prices, context) for each in found)
    if chosen := [way for way in ways if way is not None]:
        narrowing = _Narrowing({each.op: each for each in chosen}, prices)
        ids = IdTable(context.module)
        pattern = LowerBy(narrowing.formula, ids)
        for each in chosen:
            pattern.match_and_rewrite(each.op, PatternRewriter(each.op))
            if each.quantising is not None:
                each.quantising.rewrite(ids)


def _attention_scores(context: FusionContext) -> set[Operation]:
    """Products that attention may take along, whose kernels read floats."""
    if context.policy.forbids_fusion("attention") or context.why_none_of(("attention",)) is not None:
        return set()
    found = set[Operation]()
    for op in context.function.body.block.ops:
        if isinstance(op, logical.MatmulOp):
            try:
                found.add(attention_ending_in(op).scores)
            except NoAttention:
                continue
    return found


def _chosen(
    product: Product, kept: set[Operation], prices: ProductPrices, context: FusionContext
) -> Product | None:
    """How a product is to be one of integers, None if it is not; notes why or why not."""
    because, figures = _against(product, kept, context), dict[str, Attribute]()
    chosen: Product | None = None
    if because is None:
        try:
            narrow, way = _cheapest(product, prices)
            wide = prices.wide(product.op, product.operands)
        except NoKernel as error:
            because = str(error)
        else:
            figures = {"narrow_us": microseconds(narrow), "wide_us": microseconds(wide)}
            wanted = is_listed(product.op, context)
            chosen = way if (narrow < wide if wanted is None else wanted) else None
            because = (
                f"predicted {narrow:.3g} us as a product of {product.stored} and {wide:.3g} us in f32"
                if wanted is None
                else "the policy lists it so"
            )
    choice = WIDE if chosen is None else chosen.choice
    record_decision(
        context.module, NarrowProductsPass.name, [id_of(product.op)], choice, because, cost=figures
    )
    return chosen


def _cheapest(product: Product, prices: ProductPrices) -> tuple[float, Product]:
    """The way of multiplying the integers that is predicted to take least, with its time. Raises NoKernel if there is
    none, with the reason that the first one has."""
    axis = next((along for scale, along in filter(None, product.scales) if scale.count > 1), None)
    priced: list[tuple[float, Product]] = []
    reasons: list[str] = []
    for way in ways_of(product, prices):
        if (because := way.against()) is None:
            try:
                priced.append((prices.narrow(way.widening, way.operands, axis, way.corrections), way))
            except NoKernel as error:
                because = str(error)
        reasons += [] if because is None else [because]
    if not priced:
        raise NoKernel(reasons[0])
    return min(priced, key=lambda entry: entry[0])


def _against(product: Product, kept: set[Operation], context: FusionContext) -> str | None:
    """Why the policy or what reads a product keeps it in f32."""
    if context.policy.rounding == "strict":
        return (
            f"sums of {product.stored} round differently from f32 sums, "
            "and the policy wants strict rounding (rounding)"
        )
    if context.policy.determinism == BATCH_INVARIANT:
        return "which of the two is faster depends on the batch, and results may not (determinism)"
    return "it can be fused into attention, whose kernels read floats" if product.op in kept else None


@dataclass
class _Narrowing:
    """Writes products of integers; those that read one tensor share its integers.

    Args:
        products: By op.
        prices: Knows what is there before the first run.
        made: Stored integers and zero points, to their difference.
    """

    products: dict[Operation, Product]
    prices: ProductPrices
    made: dict[tuple[SSAValue, SSAValue | None], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, SSAValue | None], SSAValue]
    )

    def formula(self, lower: Lowering, op: LogicalOp) -> SSAValue:
        """The sums of a product as f32, times the scales."""
        product = self.products[op]
        factors = [
            self._integers(lower, each, name)
            for each, name in zip(product.operands, ("lhs", "rhs"), strict=True)
        ]
        sums = lower.add(product.widening(*factors), INTEGERS)
        for correction, other in zip(product.corrections, factors[::-1], strict=True):
            if correction is not None:
                sums = correction.centred(lower, sums, other, f"{INTEGERS}.centred")
        value = lower.cast(sums, F32, f"{INTEGERS}.f32")
        *others, (scale, axis) = self._scales(lower, product)
        for other, along in others:
            value = lower.add(logical.MulOp(value, other.spread(lower, value, along)), "scaled")
        return lower.add(logical.MulOp(value, scale.spread(lower, value, axis)), "")

    def _scales(self, lower: Lowering, product: Product) -> list[tuple[Scale, int]]:
        """What sums are multiplied with, over the step that quantises the product: one vector, if it may be computed
        before the first run."""
        scales = [each for each in product.scales if each is not None]
        if product.quantising is not None:
            scales.append((Scale.number(1 / product.quantising.step), scales[-1][1]))
        scales = joint(scales)
        known, unknown = (
            [each for each in scales if (each[0].known is None) == is_unknown] for is_unknown in (False, True)
        )
        if len(known) != 1 or len(unknown) != 1 or known[0][0].count > 1:
            return scales
        (factor, _), (scale, axis) = known[0], unknown[0]
        if factor.known is None or not self.prices.is_prepared(scale.vector):
            return scales
        return [(scale.times(lower, factor.known.item()), axis)]

    def _integers(self, lower: Lowering, operand: Dequantised, name: str) -> SSAValue:
        key = operand.stored, operand.zero
        if key not in self.made:
            self.made[key] = operand.integers(lower, operand.stored, name)
        return self.made[key]
