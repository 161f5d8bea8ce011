"""Products of a value with a weight, perhaps packed, and their biases: what `merge-products` puts side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.matching import without_casts
from aicf.passes.bodies.products import AnyProduct
from aicf.passes.support.identity import IdTable, merge_sources, name_after

_MOST_READERS = 32
"""Ops after a product among which one that also reads another is looked for."""


@dataclass(frozen=True)
class Bias:
    """What is added to every row of a product.

    Args:
        values: One for each column of the product.
        total: The addition, which alone reads the product.
    """

    values: SSAValue
    total: logical.AddOp


@dataclass(frozen=True)
class WeightedProduct:
    """``operand @ weight`` for a weight of one matrix, and its bias, if it has one."""

    op: AnyProduct
    bias: Bias | None

    @property
    def operand(self) -> SSAValue:
        """What is multiplied by the weight."""
        return self.op.operands[0]

    @property
    def weight(self) -> SSAValue:
        """The matrix, or its packed rows."""
        return self.op.operands[1]

    @property
    def values(self) -> tuple[SSAValue, ...]:
        """The weight, and the values of the bias."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias.values)

    @property
    def ops(self) -> tuple[LogicalOp, ...]:
        """The product, and the addition of its bias."""
        return (self.op,) if self.bias is None else (self.op, self.bias.total)

    @property
    def result(self) -> SSAValue:
        """What others read."""
        return self.ops[-1].results[0]

    @property
    def width(self) -> int:
        """Columns of the result."""
        return tensor_info(self.result.type).shape[-1]

    @property
    def axis(self) -> int:
        """The dimension of the weight that has a size for each column of the result."""
        return 1 if isinstance(self.op, logical.MatmulOp) and self.op.transpose_b is None else 0

    def is_like(self, other: WeightedProduct) -> bool:
        """Whether the products, of one operand, differ only in the width of their weights."""
        return (
            type(self.op) is type(other.op)
            and self.op.properties == other.op.properties
            and element_of(self.weight.type) == element_of(other.weight.type)
            and self._depth == other._depth
        )

    @property
    def _depth(self) -> int:
        """The size of the weight that the product contracts, in elements or in packed bytes."""
        return tensor_info(self.weight.type).shape[1 - self.axis]


def product_of(op: Operation) -> WeightedProduct | None:
    """The product that an op is, with its bias; None if it is none with one matrix, or its sizes are not known."""
    if not isinstance(op, AnyProduct) or len(op.operands) != 2 or tensor_info(op.operands[1].type).rank != 2:
        return None
    if not all(tensor_info(value.type).is_static for value in (*op.operands, op.results[0])):
        return None
    return WeightedProduct(op, _bias_of(op.results[0]))


def _bias_of(product: SSAValue) -> Bias | None:
    if not product.has_one_use():
        return None
    total = next(iter(product.uses)).operation
    if not isinstance(total, logical.AddOp):
        return None
    rows = total.rhs if total.lhs is product else total.lhs
    if not isinstance(rows.owner, logical.BroadcastOp):
        return None
    values, last = rows.owner.operand, tensor_info(product.type).rank - 1
    is_bias = tensor_info(values.type).rank == 1 and tuple(rows.owner.dimensions.get_values()) == (last,)
    same = tensor_info(values.type).shape == tensor_info(product.type).shape[-1:]
    return Bias(values, total) if is_bias and same else None


def pointwise_reader(product: WeightedProduct) -> Operation | None:
    """An op that a kernel could apply to the product alone, on its accumulators; None if there is none.

    Casts are passed over, which consumers of a slice do as well.
    """
    sizes, values = tensor_info(product.result.type).sizes, [product.result]
    for value in values:
        for use in value.uses:
            reader = use.operation
            if isinstance(reader, logical.CastOp):
                values.append(reader.result)
            elif reader.has_trait(logical.Elementwise) and tensor_info(reader.results[0].type).sizes == sizes:
                return reader
    return None


def gated(products: Iterable[WeightedProduct]) -> set[Operation]:
    """Those with weights of one shape that a pointwise op reads two of: ``act(gate) * up``."""
    read: dict[tuple[Operation, Attribute], list[Operation]] = {}
    for product in products:
        for reader in _pointwise_readers(product.result):
            read.setdefault((reader, product.weight.type), []).append(product.op)
    return {op for met in read.values() if len(met) > 1 for op in met}


def _pointwise_readers(result: SSAValue) -> set[Operation]:
    """The pointwise ops that read a value of their shape, directly or through others of them."""
    sizes, found = tensor_info(result.type).sizes, dict[Operation, None]()
    values = [result]
    for value in values:
        for reader in (use.operation for use in value.uses):
            is_near = (
                reader.has_trait(logical.Elementwise) and tensor_info(reader.results[0].type).sizes == sizes
            )
            if is_near and reader not in found and len(found) < _MOST_READERS:
                found[reader] = None
                values.append(reader.results[0])
    return set(found)


def merge_side_by_side(products: Sequence[WeightedProduct], ids: IdTable) -> LogicalOp:
    """Writes one product before the first of them, and slices of its result in their place.

    Args:
        products: Alike, in text order, all with a bias or none.
        ids: Of the module.

    Returns: The product.
    """
    return _Merging(products, ids).run()


@dataclass(frozen=True)
class _Merging:
    """See `merge_side_by_side`."""

    products: Sequence[WeightedProduct]
    ids: IdTable

    def run(self) -> LogicalOp:
        first = self.products[0]
        weight = self._joined([product.weight for product in self.products], first.axis, "weights")
        merged = self._write(_with_weight(first.op, weight), first.op, "merged")
        result = self._with_bias(merged)
        starts = accumulate((product.width for product in self.products), initial=0)
        parts = [self._part(*each, result) for each in zip(self.products, starts, strict=False)]
        for product, part in zip(self.products, parts, strict=True):
            product.result.replace_all_uses_with(part)
            for op in reversed(product.ops):
                Rewriter.erase_op(op)
        return merged

    def _with_bias(self, merged: LogicalOp) -> SSAValue:
        """The merged product with the biases of all."""
        biases = [product.bias for product in self.products if product.bias is not None]
        if not biases:
            return merged.results[0]
        shape, total = tensor_info(merged.results[0].type).shape, biases[0].total
        values = self._joined([bias.values for bias in biases], 0, "biases")
        rows = self._write(logical.BroadcastOp(values, [len(shape) - 1], shape), total, "rows")
        return self._write(logical.AddOp(merged.results[0], rows.results[0]), total, "merged").results[0]

    def _joined(self, values: Sequence[SSAValue], axis: int, suffix: str) -> SSAValue:
        """Weights or biases side by side. What casts make of parameters moves before the first product."""
        first = self.products[0].op
        for value in values:
            move_casts_before(value, first)
        return self._write(logical.ConcatOp(values, axis), first, suffix).results[0]

    def _part(self, product: WeightedProduct, start: int, result: SSAValue) -> SSAValue:
        """The slice of the result that is a product's. Its id is its own: nothing of the product is left."""
        shape = tensor_info(product.result.type).shape
        part = logical.SliceOp(result, [*[0] * (len(shape) - 1), start], shape)
        name_after(part, product.op, "part", self.ids)
        merge_sources(part, *product.ops)
        Rewriter.insert_op(part, InsertPoint.before(self.products[0].op))
        return part.result

    def _write(self, new: LogicalOp, after: Operation, suffix: str) -> LogicalOp:
        name_after(new, after, suffix, self.ids)
        merge_sources(new, *(op for product in self.products for op in product.ops))
        Rewriter.insert_op(new, InsertPoint.before(self.products[0].op))
        return new


def _with_weight(op: AnyProduct, weight: SSAValue) -> LogicalOp:
    """The same product with another weight."""
    if isinstance(op, logical.MatmulOp):
        return op.of_operands(op.lhs, weight)
    return type(op)(op.operand, weight, op.scheme.data)


def move_casts_before(value: SSAValue, later: Operation) -> None:
    """Moves the casts that give a value before an op, if they stand after it."""
    source, casts = without_casts(value), list[Operation]()
    while value is not source:
        assert isinstance(value.owner, logical.CastOp)
        casts.insert(0, value.owner)
        value = value.owner.operand
    for cast in casts:
        if later.is_before_in_block(cast):
            cast.detach()
            Rewriter.insert_op(cast, InsertPoint.before(later))
