"""`narrow-products`: products of dequantised tensors become products of their integers, where that pays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, symbols
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.attention import NoAttention, attention_ending_in
from aicf.passes.bodies.outlining import id_of
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.forming import FusionContext, fusion_contexts
from aicf.passes.legalize.dequantised import F32, Dequantised, Scale, dequantised, joint, scale_along
from aicf.passes.legalize.narrow_prices import NoKernel, ProductPrices
from aicf.passes.legalize.zero_points import Correction, is_one_number
from aicf.passes.logical.lowerings.base import LowerBy, Lowering
from aicf.passes.support.identity import IdTable, derived_id
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import without_bucket
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.kernel_policy import BATCH_INVARIANT

LARGEST_SUM = 2**31 - 1
INTEGERS = "integers"
"""The name of the widening product of an op, after the id of the op."""


@dataclass(frozen=True)
class NarrowProductsPass(ModulePass):
    """Rewrites each f32 matmul or convolution whose operands both are `(stored - zero point) * scale` into a widening
    one of the integers, cast to f32, times the scales.

    A scale is one number, or one for each row or column of the product, or output channel. The integers stay as they
    are stored where zero points are 0. So do those of a matmul's factor with one zero point, where the other factor
    follows from parameters: what the zero point adds to the sums then does so too, and is taken off them. Else the
    integers are i16, less their zero points. Sums have to fit into i32 whatever is stored. They are exact, so results
    round otherwise than those of f32: a policy of `strict` rounding, or of results that no batch may change, keeps f32.
    Else it is a matter of predicted time, or of which ops the policy lists; the ledger has both times. What else reads
    a dequantised tensor goes on to do so.
    """

    name = "narrow-products"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if PREPARE in symbols(op):
            return
        for context in fusion_contexts(op, target_of(op), grouped=True):
            if found := list(_products(context.function.body.block.ops)):
                _narrow_all(found, context)


@dataclass(frozen=True)
class _Product:
    """A product of two dequantised tensors.

    Args:
        scales: Of each operand, with the dimension of the result along which it lies; None where it lies along none.
        terms: How many products are added up.
        largest: The largest magnitude of such a sum.
        corrections: For each operand what its zero point adds to the sums, if its integers stay as they are stored.
    """

    op: logical.MatmulOp | logical.ConvOp
    operands: tuple[Dequantised, Dequantised]
    scales: tuple[tuple[Scale, int] | None, ...]
    terms: int
    largest: int
    corrections: tuple[Correction | None, Correction | None] = (None, None)

    def widening(self, lhs: SSAValue, rhs: SSAValue) -> LogicalOp:
        """The product of integers."""
        bias = (None,) if isinstance(self.op, logical.ConvOp) else ()
        return self.op.of_operands(lhs, rhs, *bias, widening=True)

    @property
    def choice(self) -> str:
        """What is chosen where this is."""
        return f"of integers: {' and '.join(each.element.name for each in self.operands)}"

    def against(self) -> str | None:
        """Why it is none of integers, whatever that would take."""
        if None in self.scales:
            return "a scale is neither per tensor nor per row, column or output channel"
        for each in self.operands:
            if each.zero is not None and each.largest > np.iinfo(each.element.dtype).max:
                return f"an integer less its zero point may be {each.largest}, which {each.element.name} does not hold"
        if self.largest > LARGEST_SUM:
            return (
                f"a sum of {self.terms} products may reach {self.largest}, which i32 does not hold: "
                "split the sum"
            )
        return None


def _products(ops: Iterable[Operation]) -> Iterator[_Product]:
    for op in ops:
        if isinstance(op, logical.MatmulOp) or (isinstance(op, logical.ConvOp) and op.bias is None):
            lhs, rhs = dequantised(op.operands[0]), dequantised(op.operands[1])
            if lhs is not None and rhs is not None:
                yield _product(op, lhs, rhs)


def _product(op: logical.MatmulOp | logical.ConvOp, lhs: Dequantised, rhs: Dequantised) -> _Product:
    """The dimensions along which scales may lie are those that are not added up."""
    rank, sizes = tensor_info(op.result.type).rank, tensor_info(lhs.value.type).shape
    if isinstance(op, logical.ConvOp):
        axes: tuple[tuple[int | None, int], ...] = ((None, 1), (0, 1))
        terms = prod(tensor_info(rhs.value.type).shape[1:])
    else:
        row = len(sizes) - (1 if op.transpose_a is not None else 2)
        column = tensor_info(rhs.value.type).rank - (2 if op.transpose_b is not None else 1)
        axes = ((row, rank - 2), (column, rank - 1))
        terms = sizes[-2] if op.transpose_a is not None else sizes[-1]
    scales = tuple(
        None if (scale := scale_along(each.scale, own)) is None else (scale, axis)
        for each, (own, axis) in zip((lhs, rhs), axes, strict=True)
    )
    return _Product(op, (lhs, rhs), scales, terms, terms * lhs.largest * rhs.largest)


def _ways(product: _Product, prices: ProductPrices) -> Iterator[_Product]:
    """The product with the integers of a factor as they are stored, where what its zero point adds is known ahead of
    the first run; then with integers less their zero points."""
    if isinstance(product.op, logical.MatmulOp):
        for number, (own, other) in enumerate((product.operands, product.operands[::-1])):
            is_uniform = own.zero is not None and is_one_number(own.zero)
            if is_uniform and prices.is_prepared(other.value) and not prices.is_prepared(own.value):
                yield _as_stored(product, product.op, number)
    yield product


def _as_stored(product: _Product, op: logical.MatmulOp, number: int) -> _Product:
    """A product that reads the integers of factor `number`, which have one zero point, as they are stored."""
    operands, corrections = list(product.operands), list(product.corrections)
    zero = operands[number].zero
    assert zero is not None
    operands[number] = operands[number].as_stored
    corrections[number] = _correction(op, zero, 1 - number)
    return replace(product, operands=tuple(operands), corrections=tuple(corrections))


def _correction(op: logical.MatmulOp, zero: SSAValue, other: int) -> Correction:
    """Of a zero point of one factor of a matmul, whose factor `other` has none."""
    shape, rank = tensor_info(op.operands[other].type).shape, tensor_info(op.result.type).rank
    flipped = (op.transpose_a, op.transpose_b)[other] is not None
    # The terms are the columns of the left factor, or the rows of the right one.
    summed = len(shape) - (1 if (other == 0) != flipped else 2)
    batch = range(rank - len(shape), rank - 2)
    return Correction(zero, shape, (summed,), (*batch, rank - 2 + other))


def _narrow_all(found: Sequence[_Product], context: FusionContext) -> None:
    prices, kept = ProductPrices(context.module, context), _attention_scores(context)
    ways = (_chosen(each, kept, prices, context) for each in found)
    if chosen := [way for way in ways if way is not None]:
        narrowing = _Narrowing({each.op: each for each in chosen})
        pattern = LowerBy(narrowing.formula, IdTable(context.module))
        for each in chosen:
            pattern.match_and_rewrite(each.op, PatternRewriter(each.op))


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
    product: _Product, kept: set[Operation], prices: ProductPrices, context: FusionContext
) -> _Product | None:
    """How a product is to be one of integers, None if it is not; notes why or why not."""
    because, figures = _against(product.op, kept, context), dict[str, Attribute]()
    chosen: _Product | None = None
    if because is None:
        try:
            narrow, way = _cheapest(product, prices)
            wide = prices.wide(product.op, product.operands)
        except NoKernel as error:
            because = str(error)
        else:
            figures = {"narrow_us": microseconds(narrow), "wide_us": microseconds(wide)}
            wanted = _is_listed(product.op, context)
            chosen = way if (narrow < wide if wanted is None else wanted) else None
            because = (
                f"predicted {narrow:.3g} us as a product of integers and {wide:.3g} us in f32"
                if wanted is None
                else "the policy lists it so"
            )
    choice = "in f32" if chosen is None else chosen.choice
    record_decision(
        context.module, NarrowProductsPass.name, [id_of(product.op)], choice, because, cost=figures
    )
    return chosen


def _cheapest(product: _Product, prices: ProductPrices) -> tuple[float, _Product]:
    """The way of multiplying the integers that is predicted to take least, with its time. Raises NoKernel if there is
    none, with the reason that the first one has."""
    axis = next((along for scale, along in filter(None, product.scales) if scale.count > 1), None)
    priced: list[tuple[float, _Product]] = []
    reasons: list[str] = []
    for way in _ways(product, prices):
        if (because := way.against()) is None:
            try:
                priced.append((prices.narrow(way.widening, way.operands, axis, way.corrections), way))
            except NoKernel as error:
                because = str(error)
        reasons += [] if because is None else [because]
    if not priced:
        raise NoKernel(reasons[0])
    return min(priced, key=lambda entry: entry[0])


def _against(op: Operation, kept: set[Operation], context: FusionContext) -> str | None:
    """Why the policy or what reads a product keeps it in f32."""
    if context.policy.rounding == "strict":
        return "integer sums round differently from f32 sums, and the policy wants strict rounding (rounding)"
    if context.policy.determinism == BATCH_INVARIANT:
        return "which of the two is faster depends on the batch, and results may not (determinism)"
    return "it can be fused into attention, whose kernels read floats" if op in kept else None


def _is_listed(op: Operation, context: FusionContext) -> bool | None:
    """Whether the policy lists the product as one of integers, or as one of f32; None if it says neither."""
    own = id_of(op)
    for name, is_narrow in ((derived_id(own, INTEGERS), True), (own, False)):
        if name in context.pinned or without_bucket(name) in context.pinned:
            return is_narrow
    return None


@dataclass
class _Narrowing:
    """Writes products of integers; those that read one tensor share its integers.

    Args:
        products: By op.
        made: Stored integers and zero points, to their difference.
    """

    products: dict[Operation, _Product]
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
                excess = correction.excess(lower, other, f"{INTEGERS}.excess")
                sums = correction.taken_off(lower, sums, excess, f"{INTEGERS}.centred")
        value = lower.cast(sums, F32, f"{INTEGERS}.f32")
        *others, (scale, axis) = joint([each for each in product.scales if each is not None])
        for other, along in others:
            value = lower.add(logical.MulOp(value, other.spread(lower, value, along)), "scaled")
        return lower.add(logical.MulOp(value, scale.spread(lower, value, axis)), "")

    def _integers(self, lower: Lowering, operand: Dequantised, name: str) -> SSAValue:
        key = operand.stored, operand.zero
        if key not in self.made:
            self.made[key] = operand.integers(lower, operand.stored, name)
        return self.made[key]
