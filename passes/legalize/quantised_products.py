"""Products of dequantised tensors, and the ways to multiply their integers.

What is chosen of them is settled in `narrow-products`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp, int_values
from aicf.dialects.types import tensor_info
from aicf.passes.legalize.dequantised import Dequantised, Scale, dequantised, scale_along
from aicf.passes.legalize.narrow_prices import ProductPrices
from aicf.passes.legalize.requantised import Requantisation, requantised
from aicf.passes.legalize.uncentred import reads_as_stored
from aicf.passes.legalize.zero_points import Correction

LARGEST_SUM = 2**31 - 1


@dataclass(frozen=True)
class Product:
    """A product of two dequantised tensors.

    Args:
        scales: Of each operand, with the dimension of the result along which it lies; None where it lies along none.
        terms: How many products are added up.
        largest: The largest magnitude of such a sum of integers; 0 for floats, whose sums are f32.
        corrections: For each operand what its zero point adds to the sums, if its integers stay as they are stored.
        padding_value: What stands for 0 around the operand of a convolution.
        quantising: What quantises the product, if anything does.
    """

    op: logical.MatmulOp | logical.ConvOp
    operands: tuple[Dequantised, Dequantised]
    scales: tuple[tuple[Scale, int] | None, ...]
    terms: int
    largest: int
    corrections: tuple[Correction | None, Correction | None] = (None, None)
    padding_value: int = 0
    quantising: Requantisation | None = None

    def widening(self, lhs: SSAValue, rhs: SSAValue) -> LogicalOp:
        """The product of integers."""
        if isinstance(self.op, logical.MatmulOp):
            return self.op.of_operands(lhs, rhs, widening=True)
        return self.op.of_operands(lhs, rhs, None, widening=True, padding_value=self.padding_value or None)

    @property
    def choice(self) -> str:
        """What is chosen where this is."""
        return f"of {self.stored}: {' and '.join(each.element.name for each in self.operands)}"

    @property
    def stored(self) -> str:
        """What is multiplied, as messages call it."""
        return "floats" if self.operands[0].is_float8 else "integers"

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


def products_among(ops: Iterable[Operation]) -> Iterator[Product]:
    for op in ops:
        if isinstance(op, logical.MatmulOp) or (isinstance(op, logical.ConvOp) and op.bias is None):
            lhs, rhs = dequantised(op.operands[0]), dequantised(op.operands[1])
            if lhs is not None and rhs is not None and _go_together(op, lhs, rhs):
                yield _product(op, lhs, rhs)


def _go_together(op: logical.MatmulOp | logical.ConvOp, lhs: Dequantised, rhs: Dequantised) -> bool:
    """Whether both are integers, or floats that are no operands of a convolution."""
    if lhs.is_float8 or rhs.is_float8:
        return lhs.is_float8 and rhs.is_float8 and isinstance(op, logical.MatmulOp)
    return True


def _product(op: logical.MatmulOp | logical.ConvOp, lhs: Dequantised, rhs: Dequantised) -> Product:
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
    if lhs.is_float8:
        return Product(op, (lhs, rhs), scales, terms, 0)
    largest = terms * lhs.largest * rhs.largest
    return Product(op, (lhs, rhs), scales, terms, largest, quantising=requantised(op.result))


def ways_of(product: Product, prices: ProductPrices) -> Iterator[Product]:
    """The product with the integers of a factor as they are stored, where what its zero point adds is known ahead of
    the first run; then with integers less their zero points."""
    for number, (own, other) in enumerate((product.operands, product.operands[::-1])):
        if reads_as_stored(own, other, prices):
            yield from _as_stored(product, number)
    yield product


def _as_stored(product: Product, number: int) -> Iterator[Product]:
    """A product that reads the integers of factor `number`, which have one zero point, as they are stored; none of a
    convolution that would have to pad them with a number that is not known."""
    own, op = product.operands[number], product.op
    assert own.zero is not None
    if isinstance(op, logical.MatmulOp):
        correction, padding_value = Correction.of(op, own.zero, 1 - number), 0
    elif number == 1 or (not own.knows_zero and any((*int_values(op.low), *int_values(op.high)))):
        return
    else:
        shape = tensor_info(op.weight.type).shape
        correction = Correction(own.zero, shape, tuple(range(1, len(shape))), (1,))
        padding_value = own.zeros[0] if own.knows_zero else 0
    own = own.as_stored
    operands = (own, product.operands[1]) if number == 0 else (product.operands[0], own)
    corrections = (correction, None) if number == 0 else (None, correction)
    yield replace(product, operands=operands, corrections=corrections, padding_value=padding_value)
